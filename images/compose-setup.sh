#!/usr/bin/env bash
# The service setup of docker-compose.yml, which ends before the others start: it makes the secrets that are missing in the volume /secrets, and
# builds the sandbox image.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
umask 077

# secret NAME VALUE: the given value, else the value of an earlier start, else a new one.
secret() {
	[ -n "$2" ] || [ ! -s "/secrets/$1" ] || return 0
	printf '%s' "${2:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}" >"/secrets/$1.new"
	mv "/secrets/$1.new" "/secrets/$1"
}
secret admin-token "${CORE_API_ADMIN_TOKEN:-}"
secret postgres-password "${POSTGRES_PASSWORD:-}"

# As clients of PostgreSQL read it: PGPASSFILE.
password=$(cat /secrets/postgres-password)
password=${password//\\/\\\\}
printf '*:*:*:*:%s\n' "${password//:/\\:}" >/secrets/pgpass

SECBOX_PULL_SECONDS=1800 images/build-sandbox.sh
say "when core-api is healthy, sign in at http://127.0.0.1:${SECBOX_PORT:-8003}/ with the token that this prints: docker compose exec core-api cat /secrets/admin-token"
