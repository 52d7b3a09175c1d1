# shellcheck shell=bash
# Shared by the scripts: messages, and the installation of Debian packages. Source it, do not run it.

say() { printf 'secbox: %s\n' "$*"; }
fail() {
	printf 'secbox: %s\n' "$*" >&2
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# within SECONDS COMMAND...: macOS has no timeout(1), so there is no limit there.
within() {
	local seconds=$1
	shift
	if have timeout; then timeout "$seconds" "$@"; else "$@"; fi
}

# The Go toolchain's usual homes: a root shell on a fresh machine often lacks them on PATH.
PATH="$PATH:/usr/local/go/bin:/usr/lib/go/bin"
export PATH

# can_apt: reports whether packages can be installed on this machine. It prints nothing.
can_apt() {
	local release=${SECBOX_OS_RELEASE:-/etc/os-release} # the override is for tests
	[ "$(id -u)" = 0 ] && have apt-get && [ -r "$release" ] && grep -Eq '^ID(_LIKE)?=.*(debian|ubuntu)' "$release"
}

# scratch NAME: a new temporary directory in the variable of that name; it is removed when the script ends.
litter=()
trap '[ ${#litter[@]} -eq 0 ] || rm -rf "${litter[@]}"' EXIT
scratch() {
	local _new
	_new=$(mktemp -d "${TMPDIR:-/tmp}/secbox.XXXXXX")
	litter+=("$_new")
	printf -v "$1" %s "$_new"
}

# build PROGRAM: builds a program of cmd/ into dir: in bin/, scripts at the same time would take it from
# each other. Tests link it once, into SECBOX_PROGRAMS, and go build leaves a copy that is up to date.
build() {
	[ -z "${SECBOX_PROGRAMS:-}" ] || cp "$SECBOX_PROGRAMS/$1" "$dir/"
	CGO_ENABLED=0 go build -trimpath -o "$dir/$1" "./cmd/$1"
}

# The package lists are fetched once per run at most, by all scripts together.
if [ -z "${SECBOX_APT_STAMP:-}" ]; then
	stamp_dir=
	scratch stamp_dir
	export SECBOX_APT_STAMP=$stamp_dir/lists-are-fresh
fi

apt_quiet() {
	local log
	log=$(mktemp "${TMPDIR:-/tmp}/secbox-apt.XXXXXX")
	if DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold "$@" >"$log" 2>&1 </dev/null; then
		rm -f "$log"
		return 0
	fi
	grep -E '^(E|W|dpkg):' "$log" | tail -n 3 >&2 || true
	rm -f "$log"
	return 1
}

apt_update() {
	[ -e "$SECBOX_APT_STAMP" ] && return 0
	say "fetching the package lists"
	: >"$SECBOX_APT_STAMP" # also when it fails: the next try of the same run would fail the same way
	apt_quiet update
}

# apt_candidate PACKAGE: the version that the lists offer, without epoch; nothing when they offer none.
apt_candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([^(].*\)/\2/p'; }

# apt_install PACKAGE...: fetches the lists only when they lack a package or are too old to download from.
apt_install() {
	local p stale=
	for p in "$@"; do [ -n "$(apt_candidate "$p")" ] || stale=1; done
	if [ -n "$stale" ]; then apt_update || return 1; fi
	say "installing $*"
	apt_quiet install -y --no-install-recommends "$@" && return 0
	[ -e "$SECBOX_APT_STAMP" ] && return 1
	apt_update && apt_quiet install -y --no-install-recommends "$@"
}

# apt_install_idle PACKAGE SERVICE: as apt_install, and the package's service neither starts nor is enabled for the next boot. The machine's own policy
# is put back afterwards.
apt_install_idle() {
	local policy=${SECBOX_SBIN:-/usr/sbin}/policy-rc.d status=0
	if [ -e "$policy" ]; then mv "$policy" "$policy.secbox"; fi
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	apt_install "$1" || status=1
	rm "$policy"
	if [ -e "$policy.secbox" ]; then mv "$policy.secbox" "$policy"; fi
	update-rc.d "$2" disable >/dev/null 2>&1 || true
	return "$status"
}
