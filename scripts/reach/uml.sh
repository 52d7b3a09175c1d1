# shellcheck shell=bash
# Debian with systemd and cgroup v2 in User-Mode Linux, which needs no support by hardware. cgroup2, rootless and podman use it.

uml_packages=user-mode-linux
guest_packages=systemd,systemd-sysv,dbus,docker.io,docker-cli,iptables,kmod,iproute2,jq,curl,ca-certificates,git,zip,unzip,postgresql,procps,python3-minimal,uidmap,slirp4netns,rootlesskit,dbus-user-session,fuse-overlayfs,podman

# guest_disk DIR SUITE KERNEL PACKAGES: a disk with the system, the kernel's modules and a unit that runs what the share says.
guest_disk() {
	local dir=$1 root=$1/root
	debian "$dir" "$2" "$4"
	mkdir -p "$root/lib/modules" "$root/etc/docker"
	cp -r "$3/root/usr/lib/uml/modules"/* "$root/lib/modules/"
	for version in "$root/lib/modules"/*; do chroot "$root" depmod "$(basename "$version")"; done
	echo '{"iptables": false, "ip6tables": false}' >"$root/etc/docker/daemon.json" # the kernel has no netfilter, and no job has a network
	echo reach >"$root/etc/hostname"
	printf '127.0.0.1 localhost reach\n' >"$root/etc/hosts"
	chroot "$root" useradd -m -u 1000 -s /bin/bash reach
	mkdir -p "$root/etc/systemd/system/user@.service.d"
	printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >"$root/etc/systemd/system/user@.service.d/delegate.conf"
	echo '/dev/ubda / ext4 defaults 0 0' >"$root/etc/fstab"
	cat >"$root/etc/systemd/system/reach.service" <<-'UNIT'
		[Unit]
		After=docker.service
		Wants=docker.service
		[Service]
		Type=oneshot
		Environment=HOME=/root
		ExecStart=/bin/sh -c 'mkdir -p /reach; mount -t hostfs none /reach -o hostfs=/share; /bin/bash /reach/run.sh >/reach/run.log 2>&1; sync'
		ExecStopPost=/bin/systemctl --no-block poweroff
		[Install]
		WantedBy=multi-user.target
	UNIT
	chroot "$root" systemctl enable -q reach.service
	chroot "$root" systemctl disable -q postgresql apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer 2>/dev/null || true
	mke2fs -q -t ext4 -d "$root" -O ^has_journal "$dir/disk" 12G
	rm -rf "$root"
}

# boot KERNEL DISK SHARE: runs until the system in the disk has powered off. The disk does not change. The kernel is run in its own root, since
# it needs that system's C library.
boot() {
	local uml=$1/root
	mkdir -p "$uml/share" "$uml/disk" "$work/cow"
	# shellcheck disable=SC2016 # expanded inside
	timeout 5400 unshare --mount --propagation private bash -c '
		set -e
		mount --bind "$2" "$1/disk"
		mount --bind "$3" "$1/share"
		mount --bind "$4" "$1/mnt"
		mount -t proc proc "$1/proc"
		mount --rbind /dev "$1/dev"
		mount -t tmpfs -o size=6G,mode=1777 tmp "$1/tmp"
		exec chroot "$1" env TMPDIR=/tmp HOME=/root PATH=/usr/bin:/usr/sbin \
			linux.uml mem=4G ubd0=/mnt/cow,/disk/disk root=/dev/ubda rw con0=null,fd:1 con=null quiet panic=-1
	' boot "$uml" "$2" "$3" "$work/cow" >"$3/console.log" 2>&1 </dev/null || true
	rm -f "$work/cow/cow"
}

cached uml-forky debian forky "$uml_packages"
uml=$made

# in_uml TARGET SUITE: reads the script that the system runs from standard input, boots it and collects the results.
in_uml() {
	cached "disk-$2" guest_disk "$2" "$uml" "$guest_packages"
	share "$work/$1"
	cat >"$work/$1/run.sh"
	say "running $1 in User-Mode Linux"
	boot "$uml" "$made" "$work/$1"
	collect "$1" "$work/$1"
}
