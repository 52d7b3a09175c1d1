#!/usr/bin/env bash
# Runs docker compose: the plugin or the program of this machine, else a container with it, which is built once.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
have() { command -v "$1" >/dev/null 2>&1; }

if docker compose version >/dev/null 2>&1; then exec docker compose "$@"; fi
if have docker-compose && docker-compose version --short 2>/dev/null | grep -E '^v?[2-9]' >/dev/null; then exec docker-compose "$@"; fi

image=secbox-compose:latest
"$root/images/build-compose.sh" "$image" >&2

# compose sees only the engine's socket and this folder, under its own path, so that paths in its output are the host's. Variables of
# docker-compose.yml are passed by name, so that no secret is in an argument.
flags=(--rm -i --network=none --workdir "$PWD" --volume "$root:$root:ro" --volume "${SECBOX_DOCKER_SOCKET:-/var/run/docker.sock}:/var/run/docker.sock")
if [ -t 0 ] && [ -t 1 ]; then flags+=(-t); fi
for name in $(compgen -e | grep -E '^(SECBOX_|COMPOSE_|POSTGRES_|CORE_API_)' || true); do flags+=(--env "$name"); done
exec docker run "${flags[@]}" "$image" "$@"
