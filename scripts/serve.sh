# shellcheck shell=bash
# Starts a core-api of this clone for a script, with throw-away directories, and ends it with the script. Source it after lib.sh.

# The server has the default settings: those of this shell are not passed on.
for name in $(compgen -e | grep '^CORE_API_' || true) DATABASE_URL http_proxy HTTP_PROXY all_proxy ALL_PROXY; do unset "$name"; done

dir=
scratch dir
mkdir "${dir:?}/workspaces" "$dir/state"

server=
stop_server() {
	[ -n "$server" ] || return 0
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
	server=
}
trap 'stop_server; rm -rf "${litter[@]}"' EXIT
trap 'exit 130' INT TERM

# serve builds core-api, starts it on a free loopback port and waits until it is ready. Its address is in url, its files are in dir.
url=
serve() {
	local tries=0 addr
	say "building core-api (the first time takes a minute or two)"
	build core-api
	"$dir/core-api" serve --addr 127.0.0.1:0 --workspace-root "$dir/workspaces" --state-dir "$dir/state" --log-format json 2>"$dir/log" &
	server=$!
	until [ -n "$url" ] && curl -sS --max-time 5 -f -o /dev/null "$url/readyz" 2>/dev/null; do
		tries=$((tries + 1))
		if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
			tail -n 5 "$dir/log" >&2
			[ -z "$url" ] || curl -sS --max-time 5 "$url/readyz" >&2 || true
			fail "core-api did not become ready; its last words are above"
		fi
		addr=$(jq -rR 'fromjson? | select(.msg == "core-api serves") | .addr' "$dir/log" | tail -n 1)
		url=${addr:+http://$addr}
		sleep 0.1
	done
	say "core-api serves on $url, database: SQLite in its state dir"
}
