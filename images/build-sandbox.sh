#!/usr/bin/env bash
# Builds the sandbox image secbox-sandbox:latest, with or without a registry. Quick when nothing changed.
#
#   SECBOX_SANDBOX_TAG   another tag
#   SECBOX_SANDBOX_BASE  the base to use, no questions asked; else a local python:3.12-slim, else a pull of it, else a Debian base
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

tag=${SECBOX_SANDBOX_TAG:-secbox-sandbox:latest}
registry_base=python:3.12-slim
debian_base=secbox-base:bookworm

image_id() { docker image inspect -f '{{.Id}}' "$1" 2>/dev/null; }

arch=$(within 30 docker version -f '{{.Server.Arch}}' 2>/dev/null) || fail "no Docker engine answers; run: make setup"

# The init is linked without the state of the checkout, so that only its own source changes it.
init=bin/sandbox-init
if have go; then
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags=-s -o "$init" ./cmd/sandbox-init
elif [ ! -x "$init" ]; then
	fail "Go is missing and there is no $init; install Go (https://go.dev/dl) or put the released binary there"
fi

choose_base() {
	if [ -n "${SECBOX_SANDBOX_BASE:-}" ]; then
		base=$SECBOX_SANDBOX_BASE
		image_id "$base" >/dev/null || fail "the engine has no image $base; docker pull or docker load it first"
		return
	fi
	base=$registry_base
	image_id "$base" >/dev/null && return
	# Having made a base of our own once says that no registry answered: it is not asked again at every run.
	if ! image_id "$debian_base" >/dev/null; then
		say "pulling $registry_base"
		within 20 docker pull -q "$registry_base" >/dev/null 2>&1 && return
		say "no registry answers"
	fi
	base=$debian_base
	images/debian-base.sh "$base" bookworm bash ca-certificates coreutils curl findutils gawk git grep jq python-is-python3 \
		python3 python3-pip python3-venv sed tzdata unzip zip
}
choose_base

if have sha256sum; then sha() { sha256sum; }; else sha() { shasum -a 256; }; fi
inputs=$({
	cat images/sandbox.Dockerfile "$init"
	image_id "$base"
} | sha | cut -d' ' -f1)

if [ "$(docker image inspect -f '{{index .Config.Labels "secbox.image.inputs"}}' "$tag" 2>/dev/null)" = "$inputs" ]; then
	say "the sandbox image $tag is up to date (base $base)"
	exit 0
fi

say "building the sandbox image $tag on $base"
scratch context
scratch logs
install -m 0755 "$init" "$context/sandbox-init"

proxies=()
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
	if [ -n "${!name:-}" ]; then proxies+=(--build-arg "$name"); fi
done
if ! docker build --network=host --build-arg BASE="$base" ${proxies[@]+"${proxies[@]}"} \
	--label secbox.image.inputs="$inputs" --label secbox.image.base="$base" \
	-f images/sandbox.Dockerfile -t "$tag" "$context" >"$logs/build" 2>&1; then
	tail -n 15 "$logs/build" >&2
	fail "the sandbox image could not be built; the engine's words are above"
fi
say "built $tag, $(image_id "$tag" | cut -c8-19)"
