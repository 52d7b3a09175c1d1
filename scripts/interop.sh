#!/usr/bin/env bash
# Programs of others against a core-api, which it starts and ends: interop.sh [--quick] [PART...], after scripts/setup.sh. `make interop` calls it.
#
#   conformance  MCP's conformance suite; scripts/interop/conformance.yml lists what fails, and why
#   sdk          MCP's TypeScript SDK: over HTTP, and over stdio with the configuration for desktop hosts of docs/mcp.md
#   langchain    LangChain's adapter for MCP
#   types        TypeScript types of openapi-typescript from the contract, and the calls of README.md and docs/
#   sigstore     @sigstore/verify: attestations, checkpoints and proofs
#   webhook      the library standardwebhooks
#   urllib       Python's urllib: a large body that is refused
#   container    the CIS Docker Benchmark, section 5: containers of execs
#   fuzz         requests made from the contract, of a fixed seed (SEED=2 ROUNDS=20 for others)
#   promtool     Prometheus' promtool: /metrics
#   axe          axe-core on each page of the console, in light and dark, and pages of 360 pixels
#   agents       the programs of docs/agents.md with the frameworks' packages, 200 MB that npm installs into .cache/agents, and a scripted model
#   hosts        Claude Code, Gemini CLI and Codex with what secbox mcp install wrote, 750 MB that npm installs into .cache/hosts
#
# Each part is one line, ok or FAIL with the reason, and at the end there is a table; the exit code is 1 if one failed. VERBOSE=1 shows what a part prints.
# --quick leaves out promtool, agents and hosts, which are downloaded, and axe, which `make test` runs.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

all=(conformance sdk langchain types sigstore webhook urllib container fuzz promtool axe agents hosts)
if [ "${1:-}" = --quick ]; then
	shift
	all=("${all[@]:0:9}")
fi
parts=("$@")
[ $# -gt 0 ] || parts=("${all[@]}")
packages=$PWD/.cache/interop
[ "$(cat "$packages/installed.json" 2>/dev/null)" = "$(cat scripts/interop/package-lock.json)" ] ||
	fail "the packages of scripts/interop are not installed; run scripts/setup.sh test"

# shellcheck source=scripts/serve.sh
. scripts/serve.sh

part_conformance() (
	cd "$dir"
	node "$NODE_PATH/@modelcontextprotocol/conformance/dist/index.js" server --url "$url/mcp" --suite all --expected-failures "$here/conformance.yml"
)
part_sdk() { node "$here/sdk.cjs"; }
part_langchain() { node "$here/langchain.cjs"; }
part_types() { WORK=$dir node "$here/types.cjs"; }
part_sigstore() { LOG_KEY=$("$dir/core-api" audit key --state-dir "$dir/state") node "$here/sigstore.cjs"; }
part_webhook() { node "$here/webhook.cjs"; }
part_urllib() { python3 "$here/urllib_client.py"; }
part_container() { "$here/container.sh"; }
part_fuzz() { node "$here/fuzz.cjs"; }
# Debian's package would also start a Prometheus, so it is unpacked here.
part_promtool() (
	PATH=$PATH:$packages/prometheus/usr/bin
	if ! have promtool; then
		can_apt || { echo "promtool is missing; install Prometheus' promtool" && exit 1; }
		cd "$dir"
		apt-get download prometheus >apt.log 2>&1 || { apt_update && apt-get download prometheus >apt.log; }
		dpkg-deb -x prometheus_*.deb "$packages/prometheus"
	fi
	curl -sS -f "$url/metrics" | promtool check metrics
)
part_axe() { CGO_ENABLED=0 go test -count=1 -vet=off -run "^TestPagesAreAccessible\$" ./console; }
# programs PART: what the lock file of the part's folder names, in .cache, and a directory for the part.
programs() {
	export PACKAGES=$PWD/.cache/$1 WORK=$dir/$1
	mkdir -p "$PACKAGES" "$WORK"
	if ! cmp -s "$here/$1/package-lock.json" "$PACKAGES/installed.json"; then
		cp "$here/$1"/package*.json "$PACKAGES/"
		(cd "$PACKAGES" && within 900 npm ci --ignore-scripts --no-audit --no-fund) || { echo "npm cannot install the programs; look at the lines above with VERBOSE=1" && return 1; }
		cp "$here/$1/package-lock.json" "$PACKAGES/installed.json"
	fi
}
part_agents() (programs agents && node "$here/agents/run.mjs")
part_hosts() (programs hosts && "$here/hosts/run.sh")

here=$PWD/scripts/interop
export NODE_PATH=$packages/node_modules SECBOX=$dir/secbox
for part in "${parts[@]}"; do
	[[ " ${all[*]} " == *" $part "* ]] || fail "there is no part $part: take ${all[*]}"
done
build secbox
WEBHOOK_PORT=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
export WEBHOOK_PORT
CORE_API_WEBHOOKS_ALLOW=127.0.0.1:$WEBHOOK_PORT CORE_API_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8 CORE_API_WEBHOOKS_ALLOW_HTTP=true serve
export URL=$url

table='' failed=''
for part in "${parts[@]}"; do
	begun=$SECONDS result=ok
	if "part_$part" >"$dir/$part.out" 2>&1; then
		echo "ok $part"
	else
		result=FAIL failed=1
		echo "FAIL $part: $(grep -vE '^(\s*|FAIL.*)$' "$dir/$part.out" | tail -n 1)"
	fi
	[ -z "${VERBOSE:-}" ] || cat "$dir/$part.out"
	table+=$(printf '%-12s %4d s  %s' "$part" $((SECONDS - begun)) "$result")$'\n'
done
errors=$(jq -rR 'fromjson? | select(.level == "ERROR") | "\(.msg) \(.error // "")"' "$dir/log" | head -n 3)
[ -z "$errors" ] || { echo "FAIL log: core-api logged errors: $errors" && failed=1; }
printf '\n%s' "$table"
[ -z "$failed" ]
