# shellcheck shell=bash
# The newest packaged engine on this machine's kernel and cgroups, in a root and namespaces of its own.
engine_packages=docker.io,docker-cli,iptables,iproute2,jq,curl,ca-certificates,git,zip,unzip,postgresql,procps,python3-minimal

cached engine-forky debian forky "$engine_packages"
share "$work/engine"
cat >"$work/engine/run.sh" <<'RUN'
ip link set lo up
mkdir -p /var/lib/docker
dockerd --bridge=none --iptables=false --ip6tables=false --cgroup-parent=/secbox-reach >/reach/dockerd.log 2>&1 &
mkdir -p /var/tmp/reach
cd /var/tmp/reach
/bin/bash /reach/inside.sh /reach "$1"
kill %1
wait
RUN
say "running forky's engine here"
mkdir -p "$made/root/reach"
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
	mkdir -p "$1/var/tmp/docker" "$1/var/lib/docker"
	mount --bind "$1/var/tmp/docker" "$1/var/lib/docker"
	cd "$1"
	pivot_root . mnt # no chroot, in which the engine could not unpack images
	umount -l /mnt
	exec env -C / HOME=/root PATH=/usr/bin:/usr/sbin:/bin:/sbin bash /reach/run.sh "$4"
' engine "$made/root" "$work/engine" "$work/engine-data" "$linux_tests" >"$work/engine/run.log" 2>&1 </dev/null || true
collect forky-engine "$work/engine"
