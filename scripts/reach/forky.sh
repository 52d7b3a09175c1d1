# shellcheck shell=bash
# The newest packaged engine on this machine's kernel and cgroups, in a root and namespaces of its own. engines and compose use it.
cached engine-forky debian forky docker.io,docker-cli,docker-compose,docker-buildx,iptables,iproute2,jq,curl,ca-certificates,git,zip,unzip,postgresql,procps,python3-minimal
forky=$made/root

# in_forky TARGET WORDS...: runs run.sh of $work/TARGET, which is /reach there, with the words, and collects the results.
in_forky() {
	mkdir -p "$forky/reach"
	# shellcheck disable=SC2016 # expanded inside
	unshare --mount --propagation private --net --pid --ipc --uts --fork --kill-child bash -c '
		set -e
		mount --bind "$1" "$1"
		mount -t proc proc "$1/proc"
		mount --rbind /sys "$1/sys"
		mount --rbind /dev "$1/dev"
		mount -t tmpfs tmp "$1/run"
		mkdir "$3"
		mount --bind "$3" "$1/var/tmp" # not on an overlay: the engine keeps its data there
		mount --bind "$2" "$1/reach"
		mkdir -p "$1/var/tmp/docker" "$1/var/tmp/containerd" "$1/var/lib/docker" "$1/var/lib/containerd"
		mount --bind "$1/var/tmp/docker" "$1/var/lib/docker"
		mount --bind "$1/var/tmp/containerd" "$1/var/lib/containerd"
		cd "$1"
		pivot_root . mnt # no chroot, in which the engine could not unpack images
		umount -l /mnt
		exec env -C / HOME=/root PATH=/usr/bin:/usr/sbin:/bin:/sbin bash /reach/run.sh "${@:4}"
	' in_forky "$forky" "$work/$1" "$work/$1-data" "${@:2}" >"$work/$1/run.log" 2>&1 </dev/null || true
	collect "forky-$1" "$work/$1"
}
