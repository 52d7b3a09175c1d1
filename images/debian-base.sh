#!/usr/bin/env bash
# Makes a Debian base image where no registry answers: debian-base.sh TAG SUITE PACKAGE...
# An image of that tag with those packages is used again. Needs mmdebstrap and root or unprivileged user namespaces.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

tag=$1 suite=$2
shift 2
packages=$(printf '%s\n' "$@" | sort -u | paste -sd, -)

if [ "$(docker image inspect -f '{{index .Config.Labels "secbox.image.packages"}}' "$tag" 2>/dev/null)" = "$suite $packages" ]; then
	exit 0
fi

if ! have mmdebstrap; then
	if can_apt; then
		apt_install mmdebstrap || fail "mmdebstrap could not be installed: give the engine a base image instead, docker load -i python-3.12-slim.tar, and run this again"
	else
		fail "no registry answers and mmdebstrap is missing: docker load a python:3.12-slim, or on Debian or Ubuntu run: sudo apt-get install mmdebstrap"
	fi
fi

# The machine's own mirrors serve where they are of the same suite; another Debian's mirror holds this suite too; anything else
# leaves the choice to mmdebstrap.
mirrors=()
if have apt-get; then
	# shellcheck disable=SC2016 # apt's own placeholders
	found=$(apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		grep -E '^https?://' | sort -u || true)
	while IFS='|' read -r uri release component key; do
		# shellcheck disable=SC2016 # a placeholder that this apt does not know
		case $key in '' | '$('*) key= ;; *) key="[signed-by=$key] " ;; esac
		case $release in
		"$suite" | "$suite"-updates | "$suite"-security)
			[ "$component" = main ] && mirrors+=("deb $key$uri $release main")
			;;
		esac
	done <<<"$found"
fi

say "making the base image $tag from Debian $suite (once, about 20 s)"
tmp=
scratch tmp
if ! mmdebstrap --variant=minbase --include="$packages" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	"$suite" "$tmp/base.tar" ${mirrors[@]+"${mirrors[@]}"} >"$tmp/log" 2>&1 </dev/null; then
	grep -E '^(E|W):' "$tmp/log" | tail -n 3 >&2 || true
	fail "mmdebstrap could not make a Debian $suite: it needs a package mirror that answers; else docker load a python:3.12-slim and run this again"
fi
docker import --change "LABEL secbox.image.packages=\"$suite $packages\"" --change 'CMD ["/bin/bash"]' "$tmp/base.tar" "$tag" >/dev/null
