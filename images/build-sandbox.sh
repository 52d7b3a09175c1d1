#!/usr/bin/env bash
# Builds the sandbox image, with or without a registry. Quick when nothing changed.
#
#   SECBOX_SANDBOX_TAG   the tag (secbox-sandbox:latest)
#   SECBOX_SANDBOX_BASE  the base; else python:3.12-slim, local or pulled; else a Debian base made here
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=images/lib.sh
. images/lib.sh

arch=$(engine_arch)
program=bin/sandbox-init
if [ -e go.mod ] && have go; then
	# Without the state of the checkout in it, so that only its own source changes it.
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags=-s -o "$program" ./cmd/sandbox-init
elif [ ! -x "$program" ]; then
	fail "Go or its source is missing, and there is no $program; install Go (https://go.dev/dl) or put the released program there"
fi

choose_base "${SECBOX_SANDBOX_BASE:-}" python:3.12-slim secbox-base:bookworm bookworm \
	bash bzip2 ca-certificates coreutils curl file findutils gawk git grep jq less patch procps python-is-python3 python3 python3-pip python3-venv sed \
	tree tzdata unzip wget xxd xz-utils zip
build_image "${SECBOX_SANDBOX_TAG:-secbox-sandbox:latest}" images/sandbox.Dockerfile "$program"
