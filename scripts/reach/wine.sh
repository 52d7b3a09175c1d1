# shellcheck shell=bash
# Wine as an ordinary user, with docker.exe; the engine is this machine's, behind a proxy in Docker Desktop's place. windows and wsl use it.
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

# in_root ROOT HOME COMMAND...: runs as uid 1000 in a root where HOME is /home/reach, with VARIABLES and with the mounts of BOUND, "outside:inside" each. The root
# is no chroot, in which there could be no further user namespace.
in_root() {
	# shellcheck disable=SC2016 # expanded inside
	unshare --mount --pid --fork --kill-child --propagation private bash -c '
		set -e
		root=$1 home=$2
		shift 2
		mount --bind "$root" "$root"
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmp "$root/tmp"
		for bound in "$home:/home/reach" ${BOUND:-}; do
			mkdir -p "$root${bound#*:}"
			mount --bind "${bound%:*}" "$root${bound#*:}"
		done
		cd "$root"
		pivot_root . mnt
		umount -l /mnt
		exec setpriv --reuid 1000 --regid 1000 --clear-groups /usr/bin/env -i -C /home/reach HOME=/home/reach WINEPREFIX=/home/reach/prefix WINEDEBUG=-all \
			WINEDLLOVERRIDES="mscoree,mshtml=" USER=reach LANG=C.UTF-8 PATH=/usr/lib/wine:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin ${VARIABLES:-} "$@"
	' in_root "$@" </dev/null
}

# in_wine TARGET COMMAND...: copies a prefix into the share, starts the proxy, runs the command, which calls inside.sh, and collects the results.
in_wine() {
	local share=$work/$1 desktop
	cp -a "$prefix" "$share/home"
	mkdir "$share/home/prefix/drive_c/tmp"
	chown -R 1000:1000 "$share"
	"$work/desktop" 127.0.0.1:2375 /var/run/docker.sock "$share/home/prefix/drive_c" >"$share/desktop.log" 2>&1 &
	desktop=$!
	BOUND="$share:/reach ${BOUND:-}" VARIABLES="DOCKER_HOST=tcp://127.0.0.1:2375 WINEPATH=Z:\\home\\reach\\programs ${VARIABLES:-}" \
		in_root "$wine" "$share/home" "${@:2}" >"$share/run.log" 2>&1 || true
	kill "$desktop"
	collect "$1" "$share"
}

cached docker-exe docker_exe "$docker_exe_version"
docker_cli=$made/docker.exe
cached wine-trixie wine_root trixie "$windows_packages"
wine=$made/root
cached wine-prefix wine_prefix "$wine"
prefix=$made/home
go build -trimpath -o "$work/desktop" ./scripts/reach/desktop
