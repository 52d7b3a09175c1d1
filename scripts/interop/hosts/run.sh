#!/usr/bin/env bash
# Hosts of docs/agents.md that run in a terminal read what secbox mcp install wrote, and two of them start secbox mcp. It prints what they say.
#
# Environment: URL (of core-api), SECBOX (the program), PACKAGES (a directory with node_modules of this folder's lock file) and WORK (an empty directory).
set -euo pipefail

# Nothing of this machine's user.
export HOME=$WORK GEMINI_CLI_TRUST_WORKSPACE=true
unset XDG_CONFIG_HOME CLAUDE_CONFIG_DIR CODEX_HOME
cd "$WORK"
node "$PACKAGES/node_modules/@anthropic-ai/claude-code/install.cjs" # npm has run no scripts of packages

# lists HOST PATTERN COMMAND...: the host's list of servers has secbox, with the state in the pattern.
lists() {
	local host=$1 pattern=$2 said
	shift 2
	"$SECBOX" mcp install --for "$host" --server "$URL" --project demo
	said=$(timeout 120 "$PACKAGES/node_modules/.bin/$1" "${@:2}" </dev/null 2>&1)
	printf '%s\n' "$said"
	grep -qE "$pattern" <<<"$said" || { echo "$host does not list secbox as $pattern" && exit 1; }
}
lists claude-code 'secbox: .*Connected' claude mcp list
lists gemini 'secbox: .*Connected' gemini mcp list
lists codex 'secbox .*enabled' codex mcp list # reads the configuration only
