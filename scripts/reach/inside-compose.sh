#!/usr/bin/env bash
# Runs docker-compose.yml as docs/deployment.md says, on the system that the part compose made: inside-compose.sh DIR. DIR has source/, the repository; the
# engine has the images that Docker Desktop would pull. With COMPOSE_RAN, it runs already. It writes DIR/results, rows "case, result", and what the programs said into DIR/*.log.
set -euo pipefail
dir=$1
cd "$dir/source"
result() { printf '%s\t%s\n' "$1" "$2" >>"$dir/results"; }

# check CASE COMMAND...: the command's end is the result.
check() {
	if "${@:2}" >>"$dir/tests.log" 2>&1; then result "$1" ok; else result "$1" FAIL && echo "--- FAIL: $1" >>"$dir/tests.log"; fi
}

url=http://127.0.0.1:8003
token=
# call METHOD PATH [BODY]: prints the answer.
call() { curl -s -X "$1" "$url$2" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' ${3:+--data "$3"}; }
# says FILTER METHOD PATH [BODY]: reports whether jq's filter holds for the answer, which it prints.
says() {
	local answer
	answer=$(call "${@:2}")
	printf '%s\n' "$answer"
	jq -e "$1" <<<"$answer"
}
# run PROJECT SCRIPT FILTER: an exec.
run() {
	says "$3" POST /sandbox/execs "$(jq -nc --arg p "$1" --arg s "$2" '{project_id: $p, exec: {script: $s}, inputs: [{path: "in.txt", content: "given"}]}')"
}
up() { docker compose up --detach --wait --wait-timeout 900 && token=$(docker compose exec -T core-api cat /secrets/admin-token); }
core() { docker compose exec -T core-api "$@"; }

result system "$(. /etc/os-release && echo "$ID ${VERSION_ID:-$VERSION_CODENAME}")"
result engine "$(docker info -f '{{.ServerVersion}}, {{.Driver}}' | sed 's/+[^,]*//')"
result compose "$(docker compose version --short | cut -d- -f1)"

begun=$SECONDS
if [ -n "${COMPOSE_RAN:-}" ]; then
	token=$(docker compose exec -T core-api cat /secrets/admin-token)
else
	check "docker compose up, built from the source" up
	result "seconds until it is healthy" $((SECONDS - begun))
fi
check "the console answers" bash -c "curl -sL $url/ | grep -q /console"
check "a request without a token is refused" bash -c "[ \$(curl -s -o /dev/null -w '%{http_code}' $url/sandbox/execs) = 401 ]"

check "an exec reads inputs, leaves artifacts" run one 'cat /workspace/inputs/in.txt; echo made > /workspace/artifacts/out.txt; echo kept > kept.txt; id -u' \
	'.status == "succeeded" and .stdout == "given1000\n" and .artifacts[0].path == "out.txt"'
# shellcheck disable=SC2016 # expanded by jobs and jq
check "a job sees its own directories only" run two 'touch mine; ls -R /workspace; grep -c " /workspace" /proc/self/mountinfo; ! echo x > /workspace/inputs/x' \
	'.status == "succeeded" and (.stdout | test("kept.txt|projects|manifest") | not) and (.stdout | endswith("\n3\n"))'
check "the next exec is warm, and finds its work" run one 'cat kept.txt' '.status == "succeeded" and .stdout == "kept\n" and .warm'
id=$(call GET '/sandbox/execs?project_id=one' | jq -r '.items[0].exec_id')
check "meta.json has the paths in the volume" says '.docker_mounts | map(.source) | contains(["projects/one/work"])' GET "/sandbox/execs/$id/meta"
check "meta.json names the volume" says '.docker_args | any(startswith("type=volume,source=secbox_workspace,volume-subpath=projects/one/"))' GET "/sandbox/execs/$id/meta"
check "a replay is equal" says '.exec.status == "succeeded"' POST "/sandbox/execs/$id/replay" '{}'

session=$(call POST /sandbox/sessions '{"project_id": "one", "idle_ms": 600000}' | jq -r .session_id)
in_session() { says "$2" POST /sandbox/execs "$(jq -nc --arg s "$session" --arg c "$1" '{session_id: $s, context: "main", code: $c}' | jq -c '{session_id, exec: {context, code}}')"; }
check "a session" in_session 'import os; x = open("kept.txt").read()' '.status == "succeeded"'
check "a session keeps its state" in_session 'x' '.results[0].data["text/plain"] | contains("kept")'
check "a session ends" says '.status' DELETE "/sandbox/sessions/$session"

check "a skill" says '.exec.status == "succeeded"' POST /skills/shell.run/invoke '{"project_id": "demo", "inputs": {"script": "cat /etc/os-release > os.txt; wc -l os.txt"}}'
sandbox=/v1/sandbox/carol/agent007
check "a user's sandbox: a file" says '.status == "success"' PUT "$sandbox/edit?path=notes.txt" 'remember the milk'
check "a user's sandbox: a command" says '.data.stdout == "remember the milk"' POST "$sandbox/execute?command=bash" \
	'["-c", "cat notes.txt; echo kept > $HOME/note"]'
check "a user's sandbox: its home" says '.data.stdout == "kept\n"' POST "$sandbox/execute?command=bash" '["-c", "cat $HOME/note"]'

# A link in place of a directory: the engine would follow it to another project.
core bash -c 'cd /workspace-root/projects/two && mv work aside && ln -s ../one/work work'
check "a link in place of work is refused" run two 'cat kept.txt' '.code == "project_damaged"'

check "a token by the command" core core-api token create --role worker --name ci

core core-api doctor --json >"$dir/doctor.json" 2>"$dir/doctor.log" || result "core-api doctor" FAIL
jq -r '.probes[] | ["doctor: " + .name, if .ok then "ok" else "FAIL" end] | @tsv' "$dir/doctor.json" >>"$dir/results"

check "the second up changes nothing" up
docker compose rm --stop --force core-api >>"$dir/tests.log" 2>&1
check "a new container of core-api" up
check "it has the records" says '.status == "succeeded"' GET "/sandbox/execs/$id"
check "no container is left of the old one" bash -c '[ "$(docker ps -q --filter label=secbox.exec | wc -l)" -le 4 ]'

export SECBOX_WORKSPACE=/var/tmp/secbox-workspace SECBOX_PORT=8004
url=http://127.0.0.1:8004
check "with a directory of the engine's machine" up
check "an exec there" run one 'echo made > made.txt; ls' '.status == "succeeded" and (.stdout | contains("kept") | not)'
check "its file is on the machine" grep made "$SECBOX_WORKSPACE/projects/one/work/made.txt"
docker compose logs --no-color >"$dir/compose.log" 2>&1
docker compose down --volumes >>"$dir/tests.log" 2>&1
