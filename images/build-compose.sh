#!/usr/bin/env bash
# Builds the image with docker compose that scripts/compose.sh uses where this machine has no compose. Says nothing when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=images/lib.sh
. images/lib.sh

quiet=1
choose_core_api_base
build_image "$1" images/compose.Dockerfile
