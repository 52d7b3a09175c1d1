#!/usr/bin/env bash
# Demonstrates several nodes: starts PostgreSQL and three core-apis with one workspace, sends them a storm of asynchronous execs, kills one node with
# -9 in the middle, and accounts for every exec: by its row, and by what the jobs themselves wrote. The exit code is 0 only if every claim was checked.
# All files are removed at the end. DEMO_EXECS is the number of execs.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

execs=${DEMO_EXECS:-60}
for name in $(compgen -e | grep '^CORE_API_' || true) DATABASE_URL http_proxy HTTP_PROXY all_proxy ALL_PROXY; do unset "$name"; done

dir='' data=''
scratch dir
TMPDIR=/tmp scratch data # short enough for a socket, and open to the user postgres
chmod 711 "$dir"
mkdir "$dir/workspaces" "$dir/keys"

pid=() url=() id=()
database=
# End a process that this script has started, and wait for it.
end() { # SIGNAL PID
	kill "-$1" "$2" 2>/dev/null || true
	wait "$2" 2>/dev/null || true
}
stop_all() {
	local n
	for n in 1 2 3; do [ -z "${pid[n]:-}" ] || kill "${pid[n]}" 2>/dev/null || true; done
	for n in 1 2 3; do [ -z "${pid[n]:-}" ] || end TERM "${pid[n]}"; done
	pid=()
	[ -z "$database" ] || end INT "$database" # fast shutdown
	database=
}
trap 'stop_all; rm -rf "${litter[@]}"' EXIT
trap 'exit 130' INT TERM

wrong=0
title() { printf '\n%s\n' "$*"; }
check() { # CLAIM COMMAND...: the claim is true if the command succeeds.
	local what=$1
	shift
	if "$@" >/dev/null 2>&1; then return; fi
	printf '  ✗ not true: %s\n' "$what"
	wrong=$((wrong + 1))
}
holds() { jq -e "$2" "$dir/$1" >/dev/null; }
# until_true SECONDS COMMAND...: reports whether the command succeeds within the time.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}
call() { # NODE FILE PATH ARGS...: a request to a node; its body goes to the file.
	local n=$1 file=$2 path=$3
	shift 3
	curl -sS --max-time 120 -o "$dir/$file" "${url[n]}$path" "$@"
}
post() { # NODE FILE REQUEST ARGS...
	local n=$1 file=$2 request=$3
	shift 3
	call "$n" "$file" /sandbox/execs -H 'Content-Type: application/json' -d "$request" "$@"
}

say "building core-api (the first time takes a minute or two)"
build core-api

# PostgreSQL refuses to run as root.
if ! have initdb; then
	for bin in /usr/lib/postgresql/*/bin; do [ ! -x "$bin/initdb" ] || PATH="$bin:$PATH"; done
	have initdb || fail "PostgreSQL's server programs are missing; run make setup"
fi
as_postgres=()
if [ "$(id -u)" = 0 ]; then
	as_postgres=(setpriv --reuid postgres --regid postgres --init-groups)
	chown postgres "$data"
fi
(cd / && "${as_postgres[@]}" initdb -D "$data/db" -U postgres -A trust >"$dir/initdb" 2>&1) || fail "initdb failed: $(tail -n 1 "$dir/initdb")"
(cd / && exec "${as_postgres[@]}" postgres -D "$data/db" -k "$data" -c listen_addresses= -c fsync=off >"$dir/postgres" 2>&1) &
database=$!
export DATABASE_URL="postgres://postgres@/postgres?host=$data"
until_true 30 psql -qAt "$DATABASE_URL" -c 'SELECT 1' >"$dir/psql" 2>&1 || fail "PostgreSQL did not start: $(tail -n 1 "$dir/postgres")"

ready() { curl -sf --max-time 5 -o /dev/null "$1/readyz" 2>/dev/null; }
serves() { # NODE: it listens and is ready, and url and id are known.
	local line
	kill -0 "${pid[$1]}" 2>/dev/null || fail "node $1 ended: $(tail -n 3 "$dir/log$1")"
	line=$(jq -rR 'fromjson? | select(.msg == "core-api serves") | "\(.addr) \(.node)"' "$dir/log$1" | tail -n 1)
	[ -n "$line" ] || return 1
	url[$1]=http://${line% *} id[$1]=${line#* }
	ready "${url[$1]}"
}
start_node() { # NODE
	CORE_API_NODE_ADDRESS=http://127.0.0.1:0 CORE_API_NODE_LEASE_SECONDS=3 CORE_API_AUDIT_HMAC_KEY_FILE=$dir/keys/hmac CORE_API_AUDIT_LOG_KEY_FILE=$dir/keys/log \
		CORE_API_SANDBOX_MAX_CONCURRENT_EXECS=3 CORE_API_POOL_MAX=2 \
		"$dir/core-api" serve --addr 127.0.0.1:0 --workspace-root "$dir/workspaces" --state-dir "$dir/state$1" --log-format json 2>"$dir/log$1" &
	pid[$1]=$!
	until_true 60 serves "$1" || fail "node $1 did not become ready: $(tail -n 3 "$dir/log$1")"
}
for n in 1 2 3; do start_node "$n"; done

title "1. Three nodes, one PostgreSQL, one workspace"
for n in 1 2 3; do printf '  node %d  %s  %s\n' "$n" "${id[n]}" "${url[n]}"; done

title "2. Any node answers for an exec that another one runs"
request() { jq -n --arg task "$1" --arg script "$2" '{project_id: "cluster", task_ref: {task_id: $task}, exec: {script: $script}}'; }
runs() { # TASK: it runs; its row is in FILE row.json
	call 1 row.json "/sandbox/execs?status=running&task_id=$1" && holds row.json '.items | length == 1'
}
long() { request "$@" | jq '.policy_overrides = {timeout_ms: 600000}'; }
post 2 two.json "$(long on-node-2 'echo on node 2; sleep 600')" &
post 3 three.json "$(long on-node-3 'echo on node 3; sleep 600')" 2>"$dir/three.err" &
until_true 30 runs on-node-2 || true
two=$(jq -r '.items[0].exec_id' "$dir/row.json")
until_true 30 runs on-node-3 || true
three=$(jq -r '.items[0].exec_id' "$dir/row.json")
printed() { call 1 out.txt "/sandbox/execs/$1/stdout" && grep -qx "$2" "$dir/out.txt"; }
check "node 1 has the output so far of an exec on node 2" until_true 30 printed "$two" 'on node 2'
check "node 1 has the output so far of an exec on node 3" until_true 30 printed "$three" 'on node 3'
call 1 cancel.json "/sandbox/execs/$two/cancel" -X POST
call 3 two-row.json "/sandbox/execs/$two/wait?timeout_ms=30000"
check "node 1 cancels the exec on node 2, and node 3 knows" holds two-row.json '.status == "canceled"'
curl -sN --max-time 120 "${url[1]}/sandbox/execs/$three/events" >"$dir/events" &
events=$!
check "node 1 streams the events of the exec on node 3" until_true 30 grep -q 'on node 3' "$dir/events"
jq -r '"  \(.exec_id)  ran on node 2, canceled through node 1: \(.status)"' "$dir/two-row.json"

title "3. A storm of $execs asynchronous execs; node 3 is killed with -9 in the middle"
i=0
while [ "$i" -lt "$execs" ]; do
	i=$((i + 1))
	post $((i % 3 + 1)) "accepted.json" "$(request "storm-$i" "echo $i >> began; sleep 0.5; echo $i >> done")" -H 'Prefer: respond-async'
	jq -r '.exec_id // empty' "$dir/accepted.json" >>"$dir/accepted"
done
check "all were accepted" [ "$(sort -u "$dir/accepted" | wc -l)" -eq "$execs" ]
storm() { call 1 list.json "/sandbox/execs?limit=500&project_id=cluster" && holds list.json "$1"; }
on_three=".items | map(select(.node_id == \"${id[3]}\" and .status == \"running\" and (.task_id | startswith(\"storm\")))) | length > 0"
until_true 60 storm "$on_three" || true
kill -KILL "${pid[3]}"
killed=$SECONDS
wait "${pid[3]}" 2>/dev/null || true
pid[3]=
wait "$events" || true
check "the stream of the exec on node 3 has ended, without the event of its end" bash -c "! grep -q '^event: end' '$dir/events'"
last=$(sed -n 's/^id: //p' "$dir/events" | tail -n 1)
call 2 rest "/sandbox/execs/$three/events" -H "Last-Event-ID: $last"
check "node 2 goes on with the stream, to the end: lost" grep -q '"status":"lost"' "$dir/rest"
check "node 2 sends no output twice" bash -c "! grep -q 'on node 3' '$dir/rest'"
jq -nr --arg s $((SECONDS - killed)) '"  the exec that ran on node 3 is lost on record, \($s) seconds after the kill"'
all_ended='.items | all(.status != "queued" and .status != "running")'
check "all execs have ended" until_true 120 storm "$all_ended"

title "4. Every exec is accounted for"
rows=$dir/list.json work=$dir/workspaces/projects/cluster/work
check "each has one row: $((execs + 2)) in all" holds list.json ".items | length == $((execs + 2)) and (map(.task_id) | unique | length) == $((execs + 2))"
check "each has succeeded, was lost with its node, or was canceled" holds list.json '.items | all(.status == "succeeded" or .status == "lost" and .error_reason == "node_lost" or .status == "canceled")'
check "only execs of node 3 are lost" holds list.json ".items | map(select(.status == \"lost\") | .node_id) | unique == [\"${id[3]}\"]"
storm_of() { jq -r --arg s "$1" '.items[] | select(.status == $s and (.task_id | startswith("storm-"))) | .task_id | ltrimstr("storm-")' "$rows" | sort; }
check "no job began twice" [ -z "$(sort "$work/began" | uniq -d)" ]
check "every exec that succeeded has done its job" [ -z "$(comm -23 <(storm_of succeeded) <(sort "$work/done"))" ]
check "every job that was done succeeded, or is lost on record" [ -z "$(comm -13 <(storm_of succeeded | cat - <(storm_of lost) | sort) <(sort "$work/done"))" ]
{
	printf '  NODE\tSUCCEEDED\tCANCELED\tLOST\tROWS\n'
	for n in 1 2 3; do
		jq -r --arg id "${id[n]}" --arg n "$n" '.items | map(select(.node_id == $id)) as $own | def of($s): $own | map(select(.status == $s)) | length;
			"  \($n)\t\(of("succeeded"))\t\(of("canceled"))\t\(of("lost"))\t\($own | length)"' "$rows"
	done
	jq -r '.items as $all | def of($s): $all | map(select(.status == $s)) | length; "  all\t\(of("succeeded"))\t\(of("canceled"))\t\(of("lost"))\t\($all | length)"' "$rows"
} | awk -F '\t' '{printf "%-8s %10s %10s %6s %6s\n", $1, $2, $3, $4, $5}'
printf '  jobs that began, by what they wrote: %s; begun twice: %s\n' "$(wc -l <"$work/began")" "$(sort "$work/began" | uniq -d | wc -l)"

title "5. The node comes back, and another one is drained for an upgrade"
first=${id[3]}
start_node 3
check "it is the same node, and takes execs again" [ "${id[3]}" = "$first" ]
check "node 2 is drained" "$dir/core-api" node drain "${id[2]}" --wait
"$dir/core-api" node list | sed 's/^/  /'
call 2 refused.json /sandbox/execs -H 'Content-Type: application/json' -d "$(request refused true)"
check "it refuses new execs" holds refused.json '.code == "draining"'
post 3 again.json "$(request again 'echo again')"
check "another one takes them" holds again.json '.status == "succeeded"'

stop_all
for n in 1 2 3; do
	check "no container of node $n is left" [ -z "$(docker ps -aq --filter "label=secbox.node=${id[n]}")" ]
done
echo
if [ "$wrong" -gt 0 ]; then
	for n in 1 2 3; do jq -rR --arg n "$n" 'fromjson? | select(.level != "INFO") | "  node \($n): \(.level) \(.msg) \(.error // "")"' "$dir/log$n" | tail -n 5 >&2; done
	fail "$wrong of the things above are not true"
fi
say "all of the above was checked and is true; the nodes, their data and containers are gone"
