#!/usr/bin/env bash
# Runs on the system that a part made, in a scratch directory: inside.sh DIR TESTS [SKIP]. DIR has programs/, source/ and perhaps images.tar. It writes
# DIR/results, rows "case, result", and what the programs said into DIR/*.log. With QUICK set it measures no speed.
set -euo pipefail
dir=$1 tests=$2 skip=${3:-}
scratch=$PWD
export PATH=$PATH:/usr/sbin:/sbin TMPDIR=${TMPDIR:-$scratch/tmp} SECBOX_E2E_PROGRAMS=$scratch/programs
result() { printf '%s\t%s\n' "$1" "$2" >>"$dir/results"; }

for _ in $(seq 240); do
	docker info >/dev/null 2>&1 && break
	sleep 0.5
done
docker info >/dev/null || { result engine "FAIL: it does not answer" && exit 1; }
# shellcheck source=/dev/null
result system "$(. /etc/os-release && echo "$ID ${VERSION_ID:-$VERSION_CODENAME}")"
result kernel "$(uname -r | cut -d- -f1)"
result engine "$(docker info -f '{{.ServerVersion}}' | cut -d+ -f1)"
result "docker CLI" "$(docker version -f '{{.Client.Version}}' | cut -d+ -f1)"
result cgroup "$(docker info -f 'v{{.CgroupVersion}} {{.CgroupDriver}}')"
mkdir -p "$TMPDIR"
docker image inspect secbox-sandbox:latest >/dev/null 2>&1 || docker load -qi "$dir/images.tar" >/dev/null

# Copied, since a file system of the machine outside may be slow.
cp -r "$dir/programs" "$dir/source" .

probes=$(programs/core-api doctor --json --state-dir "$TMPDIR/doctor/state" --workspace-root "$TMPDIR/doctor/workspace" 2>"$dir/doctor.log") || true
printf '%s\n' "$probes" >>"$dir/doctor.log"
while IFS=$'\t' read -r name ok; do
	result "doctor: $name" "$ok"
done < <(jq -r '.probes[] | [.name, if .ok then "ok" else "FAIL" end] | @tsv' <<<"$probes")
[ -n "$probes" ] || result doctor FAIL

# warm: the median time of 30 execs, one after the other, in containers that wait.
warm() {
	local address='' pid i
	CORE_API_POOL_IDLE_SECONDS=600 programs/core-api serve --addr 127.0.0.1:0 --state-dir "$TMPDIR/warm/state" --workspace-root "$TMPDIR/warm/workspace" \
		2>"$dir/warm.log" &
	pid=$!
	for _ in $(seq 600); do
		address=$(sed -n 's/.*core-api serves" addr=\([^ ]*\).*/\1/p' "$dir/warm.log")
		[ -z "$address" ] || break
		sleep 0.1
	done
	for i in $(seq -5 30); do
		for _ in $(seq 100); do # until a container waits again
			[ "$(curl -sf "http://$address/sandbox/pool" | jq '.idle > 0 and .starting == 0')" != true ] || break
			sleep 0.1
		done
		curl -sf -o "$TMPDIR/answer" -w "$i %{time_total}\n" -H 'Content-Type: application/json' \
			-d '{"project_id": "warm", "exec": {"kind": "shell", "command": "bash", "args": ["-c", "true"]}}' "http://$address/sandbox/execs" >>"$TMPDIR/times"
		jq -e '.status == "succeeded"' "$TMPDIR/answer" >/dev/null || echo "0 0" >"$TMPDIR/times"
	done
	kill "$pid"
	wait "$pid"
	awk '$1 > 0 { print $2 * 1000 }' "$TMPDIR/times" | sort -n | sed -n 15p
}
if [ -z "${QUICK:-}" ]; then
	ms=$(warm) || ms=
	if [ -n "$ms" ]; then result "warm exec, median" "${ms%.*} ms"; else result "warm exec, median" FAIL; fi
fi

cd source/e2e
"$scratch/programs/e2e.test" -test.v -test.timeout 60m -test.parallel 2 -test.run "^($tests)\$" -test.skip "$skip" >"$dir/tests.log" 2>&1 || true
sed -nE 's/^--- (PASS|FAIL|SKIP): ([^ ]+) \((.*)s\)$/\2 \1 \3/p' "$dir/tests.log" | sort | while read -r name ended seconds; do
	case $ended in PASS) result "$name" "ok, ${seconds%.*} s" ;; *) result "$name" "$ended" ;; esac
done
for name in ${tests//|/ }; do
	grep -q "^$name"$'\t' "$dir/results" || result "$name" "FAIL: it did not end"
done
