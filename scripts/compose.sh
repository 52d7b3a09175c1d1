#!/usr/bin/env bash
# docker compose, wherever it is: the plugin or the program of this machine, else built once from its Go module into .cache.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

version=v2.40.3
built=$root/.cache/compose-$version/docker-compose

if docker compose version >/dev/null 2>&1; then exec docker compose "$@"; fi
if have docker-compose && docker-compose version --short 2>/dev/null | grep -Eq '^v?2|^v?[3-9]'; then exec docker-compose "$@"; fi

if [ ! -x "$built" ]; then
	say "building docker compose $version from its Go module (once, some two minutes)" >&2
	have go || fail "there is no docker compose plugin, and no Go to build it with"
	module=
	scratch module
	mkdir -p "$(dirname "$built")"
	(
		cd "$module"
		export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
		go mod init compose
		go get "github.com/docker/compose/v2/cmd@$version"
		go build -trimpath -ldflags="-s -X github.com/docker/compose/v2/internal.Version=$version" -o "$built" github.com/docker/compose/v2/cmd
	) >"$module/log" 2>&1 || {
		tail -n 3 "$module/log" >&2
		exit 1
	}
	rm -rf "$module"
fi
exec "$built" "$@"
