#!/usr/bin/env bash
# Makes the cluster and the database at the first start, then becomes the server.
set -euo pipefail
data=/var/lib/postgresql/data
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }

mkdir -p /var/run/postgresql && chown postgres /var/run/postgresql "$data"
if [ ! -s "$data/PG_VERSION" ]; then
	password=$(mktemp)
	cat "$POSTGRES_PASSWORD_FILE" >"$password"
	chown postgres "$password"
	as_postgres initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$password" --auth=scram-sha-256 --no-sync
	rm "$password"
	echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
	as_postgres postgres --single -D "$data" postgres <<<"CREATE DATABASE $POSTGRES_DB"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -D "$data" -c listen_addresses='*'
