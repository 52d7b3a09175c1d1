#!/usr/bin/env bash
# Fills a directory with what the image of core-api has beside the docker client: core-api-files.sh DIR, which needs Go. That is core-api, and lib/, from
# which the service setup of docker-compose.yml builds the sandbox image. images/core-api.Dockerfile runs this where the machine has no Go.
set -euo pipefail
cd "$(dirname "$0")/.."
lib=$1/lib
mkdir -p "$lib/bin" "$lib/images" "$lib/scripts"
export CGO_ENABLED=0 GOOS=linux
go build -trimpath -buildvcs=false -ldflags=-s -o "$1/core-api" ./cmd/core-api
go build -trimpath -buildvcs=false -ldflags=-s -o "$lib/bin/sandbox-init" ./cmd/sandbox-init
install -m 0755 images/build-sandbox.sh images/compose-setup.sh images/debian-base.sh "$lib/images/"
install -m 0644 images/lib.sh images/sandbox.Dockerfile "$lib/images/"
install -m 0644 scripts/lib.sh "$lib/scripts/"
