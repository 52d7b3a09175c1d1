# shellcheck shell=bash
# core-api.exe and docker.exe under Wine, as an ordinary user; the engine is this machine's, behind a proxy in Docker Desktop's place.
windows_packages=wine64,docker-cli,jq,curl,ca-certificates,git,zip,unzip,procps,postgresql
docker_exe_version=v29.8.2

# wine_root DIR SUITE PACKAGES: a root with the user that in_root takes.
wine_root() {
	debian "$@"
	chroot "$1/root" useradd -u 1000 -d /home/reach -s /bin/bash reach
}

# docker_exe DIR VERSION: Docker's own CLI for Windows, from its source.
docker_exe() {
	local source
	source=$(go mod download -json "github.com/docker/cli@$2+incompatible" | jq -r .Dir)
	cp -r "$source" "$1/source"
	chmod -R u+w "$1/source"
	(
		cd "$1/source"
		rm -rf vendor
		mv vendor.mod go.mod
		mv vendor.sum go.sum
		GOOS=windows go build -mod=mod -trimpath -ldflags='-s -w' -o ../docker.exe ./cmd/docker
	)
	rm -rf "$1/source"
}

# wine_prefix DIR ROOT: a user's prefix as Wine makes it, which takes a minute.
wine_prefix() {
	mkdir "$1/home"
	chown 1000:1000 "$1/home"
	# shellcheck disable=SC2016 # expanded inside
	in_root "$2" "$1/home" sh -c 'wine64 wineboot --init && wineserver --wait'
}

# in_root ROOT HOME COMMAND...: runs as uid 1000 in a root where HOME is /home/reach. VARIABLES are given to it, and BOUND, directories "outside:inside", are
# mounted.
in_root() {
	# shellcheck disable=SC2016 # expanded inside
	unshare --mount --pid --fork --kill-child --propagation private bash -c '
		set -e
		root=$1 home=$2
		shift 2
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmp "$root/tmp"
		for bound in "$home:/home/reach" ${BOUND:-}; do
			mkdir -p "$root${bound#*:}"
			mount --bind "${bound%:*}" "$root${bound#*:}"
		done
		exec chroot --userspec=1000:1000 "$root" /usr/bin/env -i -C /home/reach HOME=/home/reach WINEPREFIX=/home/reach/prefix WINEDEBUG=-all \
			WINEDLLOVERRIDES="mscoree,mshtml=" USER=reach LANG=C.UTF-8 PATH=/usr/lib/wine:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin ${VARIABLES:-} "$@"
	' in_root "$@" </dev/null
}

tool mmdebstrap mmdebstrap
cached docker-exe docker_exe "$docker_exe_version"
docker_cli=$made/docker.exe
cached wine-trixie wine_root trixie "$windows_packages"
wine=$made/root
cached wine-prefix wine_prefix "$wine"

share "$work/windows"
GOOS=windows go build -trimpath -o "$work/windows/programs/" ./cmd/core-api ./cmd/secbox
ln "$work/windows/programs/core-api.exe" "$work/windows/programs/core-api-as-released.exe"
cp "$docker_cli" "$work/windows/programs/"
rm "$work/windows/programs"/{core-api,core-api-as-released,secbox}
for program in core-api core-api-as-released secbox; do
	go build -trimpath -o "$work/windows/programs/$program" ./scripts/reach/onwine
done
go build -trimpath -o "$work/desktop" ./scripts/reach/desktop
cp -a "$made/home" "$work/windows/home"
mkdir "$work/windows/home/prefix/drive_c/tmp"
chown -R 1000:1000 "$work/windows"
"$work/desktop" 127.0.0.1:2375 /var/run/docker.sock "$work/windows/home/prefix/drive_c" >"$work/windows/desktop.log" 2>&1 &
desktop=$!
say "running core-api.exe under Wine"
# shellcheck disable=SC2016
BOUND="$work/windows:/reach" VARIABLES='DOCKER_HOST=tcp://127.0.0.1:2375 WINEPATH=Z:\home\reach\programs TMPDIR=/home/reach/prefix/drive_c/tmp SECBOX_E2E_SEPARATE=1' \
	in_root "$wine" "$work/windows/home" bash /reach/inside.sh /reach "$windows_tests" TestSignals/two_hangups >"$work/windows/run.log" 2>&1 || true
kill "$desktop"
collect wine "$work/windows"
