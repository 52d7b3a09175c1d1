#!/usr/bin/env bash
# Demonstrates secbox: starts core-api on a free loopback port with throw-away directories, runs a real exec and a refused one over
# HTTP, and prints their results. The exit code is 0 only if every claim was checked. On a terminal the server stays until Enter is
# pressed, so that one can look at the exec in a browser. All files are removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# shellcheck source=scripts/serve.sh
. scripts/serve.sh

wrong=0
title() { printf '\n%s\n' "$*"; }
# check CLAIM COMMAND...: the claim is true if the command succeeds.
check() {
	local what=$1
	shift
	if "$@" >/dev/null 2>&1; then return; fi
	printf '  ✗ not true: %s\n' "$what"
	wrong=$((wrong + 1))
}
# holds FILE FILTER: the JSON in the file makes the filter true.
holds() { jq -e "$2" "$dir/$1" >/dev/null; }
# call FILE ARGS...: a request; its body goes to the file, its status to code, the seconds that it took to took.
call() {
	local file=$1 said
	shift
	said=$(curl -sS --max-time 120 -o "$dir/$file" -w '%{http_code} %{time_total}' "$@") || fail "core-api does not answer: $*"
	code=${said% *} took=${said#* }
}
milliseconds() { awk -v s="$1" 'BEGIN {printf "%.0f ms", 1000 * s}'; }
sha256_of() { if have sha256sum; then sha256sum <"$1"; else shasum -a 256 <"$1"; fi | cut -d' ' -f1; }

# No container waits before the first exec, so that the demo can show how long a cold start takes.
CORE_API_POOL_READY=0 serve

program='import csv, json
rows = list(csv.DictReader(open("/workspace/inputs/sales.csv")))
total = sum(int(row["amount"]) for row in rows)
print(f"{len(rows)} rows, total {total}")
json.dump({"rows": len(rows), "total": total}, open("/workspace/artifacts/summary.json", "w"))
'
jq -n --arg main "$program" '{
  project_id: "demo", task_ref: {task_id: "demo-1"},
  exec: {kind: "python", command: "python", args: ["/workspace/inputs/main.py"]},
  inputs: [
    {path: "main.py", content: $main},
    {path: "sales.csv", content: "day,amount\nmon,19\ntue,23\n"}
  ],
  policy_overrides: {timeout_ms: 20000, memory_mb: 256}
}' >"$dir/request.json"

title "1. A command ran once, in one fresh container"
call result.json -X POST -H 'Content-Type: application/json' --data-binary @"$dir/request.json" "$url/sandbox/execs"
check "the exec was answered with 200 (it was $code)" [ "$code" = 200 ]
check "it succeeded" holds result.json '.status == "succeeded" and .exit_code == 0'
check "it printed what the program computes" holds result.json '.stdout == "2 rows, total 42\n"'
jq -r '"  exec       \(.exec_id)",
       "  ended as   \(.status), exit code \(.exit_code), after \(.duration_ms) ms",
       "  stdout     \(.stdout // "" | rtrimstr("\n"))"' "$dir/result.json" || cat "$dir/result.json"
id=$(jq -r '.exec_id // "none"' "$dir/result.json")

title "2. The same again: a container waited for it"
first=$took
tries=0
# Until it is known whether containers can wait for any project, they wait for one, and are replaced then.
until call pool.json "$url/sandbox/pool" && holds pool.json '.starting == 0 and .idle > 0 and (.not_shared_because | startswith("not known yet") | not)' ||
	[ "$tries" -gt 300 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
check "a container waits for the next exec of this kind" holds pool.json 'any(.keys[]; .idle > 0 and .memory_mb == 256 and (.project_id == "" or .project_id == "demo"))'
jq '.task_ref.task_id = "demo-2"' "$dir/request.json" >"$dir/again.json"
call warm.json -X POST -H 'Content-Type: application/json' --data-binary @"$dir/again.json" "$url/sandbox/execs"
again=$took
check "it succeeded too, with the same output" holds warm.json '.status == "succeeded" and .stdout == "2 rows, total 42\n"'
call record.json "$url/sandbox/execs/$id"
check "the first exec is on record as cold" holds record.json '.warm == false'
call record.json "$url/sandbox/execs/$(jq -r '.exec_id // "none"' "$dir/warm.json")"
check "the second exec is on record as warm" holds record.json '.warm == true'
call pool.json "$url/sandbox/pool"
check "the pool counts a hit and a miss" holds pool.json '.hits == 1 and .misses == 1'
printf '  cold, with its container started for it: %s\n' "$(milliseconds "$first")"
printf '  warm, in one that had been started ahead: %s, and just as fresh: each serves one exec\n' "$(milliseconds "$again")"

title "3. What it left behind"
call list.json "$url/sandbox/execs/$id/artifacts"
check "there is one artifact, summary.json" holds list.json '[.items[].path] == ["summary.json"]'
call summary.json "$url/sandbox/execs/$id/artifacts/summary.json"
check "the artifact can be downloaded" [ "$code" = 200 ]
check "it holds what the program wrote" holds summary.json '. == {"rows": 2, "total": 42}'
hash=$(sha256_of "$dir/summary.json")
check "the hash of the downloaded bytes is the recorded one" holds list.json ".items[0].sha256 == \"$hash\""
jq -r '.items[]? | "  \(.path)  \(.size) bytes  sha256 \(.sha256)"' "$dir/list.json" || true
printf '  downloaded and hashed again: %s\n' "$hash"

title "4. The policy it ran under, and which layer set each field"
call record.json "$url/sandbox/execs/$id"
check "memory_mb came from the request" holds record.json '.policy_snapshot.fields.memory_mb | .value == 256 and .layer == "request"'
check "pids came from the default" holds record.json '.policy_snapshot.fields.pids.layer == "default"'
check "there was no network" holds record.json '.policy_snapshot.fields["net.mode"].value == "none"'
show='if type == "array" then join(" ") elif . == "" or . == null then "-" else tostring end'
{
	printf '  FIELD\tVALUE\tLAYER\tCEILING\n'
	jq -r '.policy_snapshot.fields | to_entries | sort_by(.key)[] |
		"  \(.key)\t\(.value.value | '"$show"')\t\(.value.layer)\t\(.value.ceiling | '"$show"')"' "$dir/record.json" || true
} | awk -F '\t' '{printf "%-28s %-34s %-9s %s\n", $1, $2, $3, $4}'

title "5. A request above a ceiling is refused, and audited"
jq '.task_ref.task_id = "demo-3" | .inputs = [] | .exec.args = ["-c", "print(1)"] | .policy_overrides = {memory_mb: 99999999}' \
	"$dir/request.json" >"$dir/refused-request.json"
call refused.json -X POST -H 'Content-Type: application/json' --data-binary @"$dir/refused-request.json" "$url/sandbox/execs"
check "it was answered with 403 (it was $code)" [ "$code" = 403 ]
check "its code is policy_denied, and it names the field" holds refused.json '.code == "policy_denied" and (.errors[0].field | endswith("memory_mb"))'
jq -r '"  \(.status) \(.code)",
       (.errors[]? | "  \(.field) \(.reason) (asked by the \(.layer))")' "$dir/refused.json" || cat "$dir/refused.json"

title "6. The audit rows, newest first"
call rows.json "$url/sandbox/execs?project_id=demo"
check "all three are on record" holds rows.json '[.items[] | [.task_id, .status, .warm]] ==
	[["demo-3", "rejected", false], ["demo-2", "succeeded", true], ["demo-1", "succeeded", false]]'
check "the row names the image that ran" holds rows.json '.items[2].image_id | startswith("sha256:")'
{
	printf '  CREATED\tEXEC\tTASK\tSTATUS\tEXIT\tWARM\tBY\n'
	jq -r '.items[]? | "  \(.created_at[0:19])\t\(.exec_id)\t\(.task_id)\t\(.status)\t\(.exit_code // "-")\t\(.warm)\t\(.requested_by)"' "$dir/rows.json" || true
} | awk -F '\t' '{printf "%-22s %-37s %-7s %-10s %-5s %-6s %s\n", $1, $2, $3, $4, $5, $6, $7}'

title "7. The same in a browser"
link=$url/console/execs/$id
call page.html "$link"
check "the exec's page shows what it printed" grep -q "2 rows, total 42" "$dir/page.html"
call page.html -L -H 'Accept: text/html' "$url/"
check "the server's own address leads a browser to the console (it was answered with $code)" grep -qF 'href="/console/history"' "$dir/page.html"
printf '  %s\n' "$link"

title "What to type next"
cat <<'NEXT'
  make run                                    the server, on http://127.0.0.1:8003, with data that stays
  open http://127.0.0.1:8003/                 its console: the history, each exec with its evidence
  open http://127.0.0.1:8003/docs             every route, readable without a network
  curl -s http://127.0.0.1:8003/sandbox/execs -H 'Content-Type: application/json' \
    -d '{"project_id": "demo", "exec": {"kind": "shell", "command": "bash", "args": ["-lc", "id; ls -la"]}}'
  make test                                   every test, on a real Docker engine and a real PostgreSQL
NEXT
# If a person can read this, the link works until they have seen the page.
if [ "$wrong" -eq 0 ] && [ -t 0 ] && [ -t 1 ]; then
	printf '\nLook at the exec that ran: %s\nThen press Enter, which ends the demo. ' "$link"
	trap : INT # Ctrl-C ends the demo, too
	read -r _ || echo
fi
stop_server
node=$(jq -r '.node_id // empty' "$dir/record.json")
left=$(docker ps -aq --filter "label=secbox.node=$node" 2>/dev/null | wc -l)
check "no container is left" [ "$left" -eq 0 ]
echo
if [ "$wrong" -gt 0 ]; then
	echo "core-api said:" >&2
	jq -rR 'fromjson? | select(.level != "INFO") | "  \(.level) \(.msg) \(.error // "")"' "$dir/log" | tail -n 10 >&2
	fail "$wrong of the things above are not true"
fi
say "all of the above was checked and is true; the demo's server, data and containers are gone"
