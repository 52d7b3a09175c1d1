#!/usr/bin/env bash
# Builds the image of core-api for docker-compose.yml, with or without a registry. Quick when nothing changed.
#
#   SECBOX_CORE_API_TAG   the tag (secbox-core-api:latest)
#   SECBOX_CORE_API_BASE  the base; else debian:trixie-slim, local or pulled; else a Debian base made here
#
# The program is linked here and only copied into the image: that needs no Go image, so it works where no registry answers.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=images/lib.sh
. images/lib.sh

arch=$(engine_arch)
have go || fail "Go is missing; install it from https://go.dev/dl and run this again"
out=
scratch out
GOARCH=$arch images/core-api-files.sh "$out"

choose_core_api_base
build_image "${SECBOX_CORE_API_TAG:-secbox-core-api:latest}" images/core-api.Dockerfile "$out" --target=packed
