#!/usr/bin/env bash
# Installs everything that secbox needs: setup.sh [demo|test]. It can run again; existing parts are not changed.
#
#   demo  for a server: Go and the modules, jq and curl, a Docker engine, the sandbox image
#   test  for the tests as well: PostgreSQL's server programs, PgBouncer, the compose plugin, the runtime crun,
#         Node.js with the official MCP clients, checkers of web pages and the programs of make interop, chromium, iproute2, zip, unzip and Python (default)
#
# It installs missing packages only, as root on Debian or Ubuntu. Each failure is one line; the other steps continue, and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

goal=${1:-test}
case $goal in demo | test) ;; *) fail "usage: scripts/setup.sh [demo|test]" ;; esac

problems=0
problem() {
	printf 'secbox: %s\n' "$*" >&2
	problems=$((problems + 1))
}

# tool COMMAND PACKAGE
tool() {
	have "$1" && return
	if can_apt; then
		apt_install "$2" && return
		problem "$1 is missing and its package $2 could not be installed; install it and run this again"
	else
		problem "$1 is missing; install it with your system's package manager and run this again"
	fi
}

setup_go() {
	local want version
	want=$(sed -n 's/^go //p' go.mod)
	# An older Go (from 1.21 on) downloads the version of go.mod through the module proxy, unless GOTOOLCHAIN forbids it.
	export GOTOOLCHAIN=${GOTOOLCHAIN:-auto}
	if ! have go && can_apt && apt_update; then
		case $(apt_candidate golang-go) in
		'' | 1.[0-9]~* | 1.1[0-9]* | 1.20*) ;; # none, or one from before Go could fetch a newer Go
		*) apt_install golang-go || true ;;
		esac
	fi
	if ! have go; then
		problem "Go is missing; install Go $want or newer from https://go.dev/dl and put its bin folder on PATH"
		return
	fi
	if ! version=$(within 300 go env GOVERSION 2>/dev/null) || [ -z "$version" ]; then
		problem "$(command -v go) is older than the Go $want that go.mod asks for and could not fetch it; install it from https://go.dev/dl"
		return
	fi
	if ! go mod download >/dev/null 2>&1; then
		problem "the Go modules could not be downloaded; check the network, or point GOPROXY at a proxy that has them"
		return
	fi
	say "Go: ${version#go}, modules are here"
}

engine_answers() { have docker && within 20 docker info >/dev/null 2>&1; }

# The engine's message, without the CLI's prefix.
engine_says() {
	have docker || return 0
	{ within 20 docker info 2>&1 >/dev/null || true; } | grep -v '^WARNING' | tail -n 1 | sed 's/^ERROR: //'
}

start_engine() {
	local log=${SECBOX_DOCKERD_LOG:-/var/log/secbox-dockerd.log} pid waited=0
	if [ -d "${SECBOX_SYSTEMD_DIR:-/run/systemd/system}" ]; then
		say "starting the Docker engine with systemd"
		systemctl start docker >/dev/null 2>&1 || true
		log="journalctl -u docker"
		pid=
	else
		# A choice for sandbox.runtime; the engine's default stays. A daemon.json that names runtimes is not changed: dockerd
		# refuses runtimes in both the file and a flag.
		set --
		if have crun && ! grep -qs '"runtimes"' "${SECBOX_DAEMON_JSON:-/etc/docker/daemon.json}"; then
			set -- --add-runtime "crun=$(command -v crun)"
		fi
		say "starting dockerd in the background${1:+ with the runtime crun}, log in $log"
		# A new session without this script's descriptors: it survives the script and keeps no pipe of a caller open.
		setsid nohup dockerd "$@" >"$log" 2>&1 </dev/null &
		pid=$!
	fi
	while ! engine_answers; do
		waited=$((waited + 1))
		if [ "$waited" -le 120 ] && { [ -z "$pid" ] || kill -0 "$pid" 2>/dev/null; }; then
			sleep 0.5
			continue
		fi
		# Another dockerd may be the reason that ours ended: check once more.
		engine_answers && return
		if [ -n "$pid" ] && [ -s "$log" ]; then
			problem "dockerd does not come up: $(tail -n 1 "$log" | cut -c1-300)"
		else
			problem "the Docker engine does not come up; look at: $log"
		fi
		return 1
	done
}

install_engine() {
	local packages
	# Newer Debian keeps the client in a separate package, and the firewall tool is only recommended by the engine's.
	[ -n "$(apt_candidate docker.io)" ] || apt_update || true
	packages="docker.io iptables"
	if [ -n "$(apt_candidate docker-cli)" ]; then packages="$packages docker-cli"; fi
	# shellcheck disable=SC2086 # words on purpose
	apt_install $packages || {
		problem "docker.io could not be installed; install a Docker engine (https://docs.docker.com/engine/install) and run this again"
		return 1
	}
	hash -r
}

setup_engine() {
	local words
	if ! engine_answers; then
		words=$(engine_says)
		if [ -n "${DOCKER_HOST:-}${DOCKER_CONTEXT:-}" ]; then
			problem "the engine that ${DOCKER_HOST:+DOCKER_HOST}${DOCKER_CONTEXT:+DOCKER_CONTEXT} names does not answer${words:+ ($words)}; unset it or start that engine"
			return 1
		fi
		case $words in
		*"permission denied"*)
			problem "this user may not use the Docker engine; run: sudo usermod -aG docker $(id -un), then log in again"
			return 1
			;;
		*"is too old"* | *"is too new"*)
			problem "$(command -v docker) and the engine do not understand each other ($words); update the older of the two"
			return 1
			;;
		esac
		if ! can_apt; then
			case $(uname -s) in
			Darwin) problem "no Docker engine answers; start Docker Desktop (https://docs.docker.com/desktop) and run this again" ;;
			Linux)
				if [ "$(id -u)" = 0 ]; then
					problem "no Docker engine answers; install and start one (https://docs.docker.com/engine/install) and run this again"
				else
					problem "no Docker engine answers; start it (sudo systemctl start docker), or start Docker Desktop, or install one: sudo scripts/setup.sh"
				fi
				;;
			*) problem "no Docker engine answers; start Docker Desktop and run this again" ;;
			esac
			return 1
		fi
		if ! have docker || ! have dockerd; then install_engine || return 1; fi
		# Installing may have started it already.
		engine_answers || start_engine || return 1
	fi
	say "Docker: engine $(docker version -f '{{.Server.Version}}' 2>/dev/null), client $(command -v docker)"
}

postgres_bin() {
	local initdb newest=
	if have initdb && have postgres; then
		dirname "$(command -v initdb)"
		return
	fi
	for initdb in "${SECBOX_POSTGRES_DIR:-/usr/lib/postgresql}"/*/bin/initdb; do
		if [ -x "$initdb" ]; then newest=$initdb; fi
	done
	[ -n "$newest" ] && dirname "$newest"
}

setup_postgres() {
	local dir conf=${SECBOX_CREATECLUSTER_CONF:-/etc/postgresql-common/createcluster.conf}
	if ! dir=$(postgres_bin); then
		if ! can_apt; then
			problem "PostgreSQL's server programs (initdb, postgres) are missing, the tests need them; install PostgreSQL 14 or newer and put its bin folder on PATH"
			return
		fi
		# The package makes a cluster and starts it; the tests make their own. The setting is put back afterwards.
		if apt_install postgresql-common; then
			if [ -f "$conf" ]; then
				cp -p "$conf" "$conf.secbox"
				echo 'create_main_cluster = false' >>"$conf"
			fi
			apt_install postgresql || true
			if [ -f "$conf.secbox" ]; then mv "$conf.secbox" "$conf"; fi
		fi
		if ! dir=$(postgres_bin); then
			problem "the package postgresql could not be installed, the tests need its server programs; install it and run this again"
			return
		fi
	fi
	say "PostgreSQL: server programs in $dir"
}

# The tests start poolers of their own.
setup_pgbouncer() {
	local sbin=${SECBOX_SBIN:-/usr/sbin} # not on the PATH of other users than root
	if ! have pgbouncer && [ ! -x "$sbin/pgbouncer" ] && can_apt; then apt_install_idle pgbouncer pgbouncer || true; fi
	if ! have pgbouncer && [ ! -x "$sbin/pgbouncer" ]; then
		problem "pgbouncer is missing, the tests reach PostgreSQL through it; install the package pgbouncer and run this again"
		return
	fi
	say "PgBouncer is here"
}

setup_compose() {
	local version p
	if can_apt && ! docker compose version >/dev/null 2>&1 && ! have docker-compose; then
		for p in docker-compose-v2 docker-compose; do # Ubuntu's name, Debian's; an old Debian's is version 1 and does not serve
			case $(apt_candidate "$p") in
			[2-9].*)
				apt_install "$p" || true
				break
				;;
			esac
		done
	fi
	if version=$(scripts/compose.sh version --short); then
		say "compose: $version"
	else
		problem "no docker compose, and no image with it could be built; install the plugin docker-compose-v2 or docker-compose-plugin"
	fi
}

# Before the engine is started, whose flags name it.
setup_crun() {
	if ! have crun && can_apt; then apt_install crun || true; fi
	if ! have crun; then
		problem "crun is missing, the tests run containers with it; install the package crun and run this again"
		return
	fi
	say "crun: $(crun --version | sed -n '1s/^crun version //p')"
}

# npm_packages FROM DIR WHAT: what the lock file in FROM has, in DIR, which git does not see.
npm_packages() {
	local from=$1 dir=$2 what=$3
	if [ "$(cat "$from/package-lock.json")" != "$(cat "$dir/installed.json" 2>/dev/null)" ]; then
		say "installing $what with npm"
		mkdir -p "$dir"
		rm -f "$dir/installed.json"
		cp "$from/package.json" "$from/package-lock.json" "$dir/"
		if ! (cd "$dir" && within 300 npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1); then
			problem "$what could not be installed, see $dir/npm.log; check the network, or point npm at a registry that has them"
			return 1
		fi
		cp "$dir/package-lock.json" "$dir/installed.json"
	fi
}

# The clients that the tests of /mcp drive, and what checks the console's pages.
setup_node() {
	local missing=""
	have node || missing="nodejs"
	have npm || missing="$missing npm"
	# shellcheck disable=SC2086 # words on purpose
	if [ -n "$missing" ] && can_apt; then apt_install $missing || true; fi
	if ! have node || ! have npm || ! node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)'; then
		problem "node or npm is missing or older than 18, the tests drive MCP clients with them; install Node.js 18 or newer with npm and run this again"
		return
	fi
	npm_packages e2e/testdata/mcpclient .cache/mcpclient "the MCP clients of the tests" || return 0
	npm_packages console/testdata/browser .cache/consoletest "the checkers of the console's pages" || return 0
	npm_packages scripts/interop .cache/interop "the programs of make interop" || return 0
	npm_packages clients/typescript .cache/tsclient "the packages of the TypeScript client" || return 0
	say "Node.js: $(node --version), the MCP clients of the tests, the checkers of pages, the programs of make interop and the packages of the TypeScript client are here"
}

# The browser in which the tests open the console's pages.
setup_chromium() {
	if ! have chromium && can_apt; then apt_install chromium || true; fi
	if ! have chromium; then
		problem "chromium is missing, the tests open the console's pages with it; install the package chromium and run this again"
		return
	fi
	say "chromium: $(command -v chromium)"
}

tool curl curl
tool jq jq
tool git git
setup_go
if [ "$goal" = test ]; then # the examples of docs/ zip, the bench compares with unzip, and make interop has a client in Python
	tool zip zip
	tool unzip unzip
	tool python3 python3
fi
if [ "$goal" = test ] && [ "$(uname -s)" = Linux ]; then
	setup_crun
	tool ip iproute2
fi
if setup_engine && have go; then
	if ! images/build-sandbox.sh; then
		problems=$((problems + 1)) # it said why
	elif [ "$goal" = test ]; then
		setup_compose
	fi
fi
if [ "$goal" = test ]; then
	setup_postgres
	setup_pgbouncer
	setup_node
	setup_chromium
fi

if [ "$problems" -gt 0 ]; then
	fail "set-up is incomplete: see the $problems line(s) above"
fi
say "ready"
