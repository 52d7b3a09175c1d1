#!/usr/bin/env bash
# Runs tests of core-api where it is used, beyond this machine: reach.sh [PART...], as root on Debian. `make test-reach` calls it.
#
#   here       this machine: what the others are compared with
#   cgroup2    Debian 13 and the next one, with systemd and cgroup v2, in User-Mode Linux
#   engines    the newest packaged engine on this machine's kernel, in namespaces of its own
#   compose    docker-compose.yml with that engine, the workspace in a volume
#   wincompose the same, by docker.exe and docker-compose.exe under Wine
#   windows    core-api.exe, secbox.exe and docker.exe under Wine
#   wintests   the test programs of all packages under Wine
#   wsl        core-api of Linux with docker.exe, as under WSL
#   rootless   an engine of an ordinary user
#   podman     podman's service in place of the engine
#   arm64      programs for arm64 under qemu
#
# Each part makes what it needs once, in SECBOX_REACH_CACHE (~/.cache/secbox-reach), some GiB, and runs at low priority. The result is one
# table; the exit code is 1 if a test failed anywhere. --quick cgroup2 is for CI: one system, if it is made, and a few tests.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=
if [ "${1:-}" = --quick ]; then
	quick=1
	shift
fi
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=scripts/reach/lib.sh
. scripts/reach/lib.sh

parts=("$@")
[ $# -gt 0 ] || parts=(here cgroup2 engines compose wincompose windows wintests wsl rootless podman arm64)
for part in "${parts[@]}"; do
	[ -r "scripts/reach/$part.sh" ] || fail "there is no part $part: take here, cgroup2, engines, compose, wincompose, windows, wintests, wsl, rootless, podman or arm64"
done
can_apt || fail "this needs root on Debian or Ubuntu"
renice -n 19 $$ >/dev/null
ionice -c 3 -p $$ 2>/dev/null || true

scratch work
export CGO_ENABLED=0
for part in "${parts[@]}"; do
	# shellcheck disable=SC1090 # one of the above
	. "scripts/reach/$part.sh"
done
print_table
