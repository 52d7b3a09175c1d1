# shellcheck shell=bash
# core-api of Linux with docker.exe, which the kernel runs by Wine as WSL runs programs of Windows: by binfmt_misc, here of a user namespace. Drive C
# is at /mnt/c, and wslpath is a script.
# shellcheck source=scripts/reach/wine.sh
. scripts/reach/wine.sh

share "$work/wsl"
mkdir "$work/wsl/bin"
cp "$docker_cli" "$work/wsl/bin/"
cat >"$work/wsl/bin/wslpath" <<'SCRIPT'
#!/bin/sh
case $1 in
-w) echo "$2" | sed -E 's|^/mnt/c/|C:/|; s|/|\\|g' ;;
-u) echo "$2" | sed -E 's|^[Cc]:|/mnt/c|; s|\\|/|g' ;;
esac
SCRIPT
cat >"$work/wsl/bin/run-exe" <<'SCRIPT'
#!/bin/sh
export WINEPREFIX=/home/reach/prefix WINEDEBUG=-all
exec /usr/lib/wine/wine64 "$@"
SCRIPT
chmod +x "$work/wsl/bin"/*
cat >"$work/wsl/enter.sh" <<'ENTER'
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
echo ':wine:M::MZ::/reach/bin/run-exe:' >/proc/sys/fs/binfmt_misc/register
exec unshare --user --map-user=1000 --map-group=1000 bash /reach/inside.sh /reach "$1" "$2"
ENTER
say "running core-api with docker.exe"
VARIABLES="TMPDIR=/mnt/c/tmp WSL_DISTRO_NAME=Debian CORE_API_SANDBOX_DOCKER_PATH=/reach/bin/docker.exe PATH=/usr/lib/wine:/reach/bin:/usr/local/bin:/usr/bin:/bin" \
	BOUND="$work/wsl/home/prefix/drive_c:/mnt/c" \
	in_wine wsl unshare --user --map-root-user --mount bash /reach/enter.sh "$windows_tests" ""
