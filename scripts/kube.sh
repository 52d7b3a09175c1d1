#!/usr/bin/env bash
# Runs a Kubernetes of one node on this machine, for tests and for `make demo-kubernetes`. As root on Debian or Ubuntu:
#
#   kube.sh up             builds the missing programs, starts the parts that do not run, and prints the path of the kubeconfig
#   kube.sh status         prints what runs; the exit code is 1 if a part is missing
#   kube.sh image TAG...   copies images of the Docker engine into the cluster
#   kube.sh down           ends the cluster and removes everything but the programs
#
# SECBOX_KUBE_CACHE (~/.cache/secbox-kube) has the programs in bin/ and the cluster in cluster/. All parts listen on 127.0.0.1 only, by TLS, and
# none answers without a token or a certificate. Pods reach the API server at the usual address of the service kubernetes, and nothing else of
# this machine. There is no name server, no kube-proxy, and no network policy: the cluster is for tests.
set -euo pipefail
cache=$(realpath -m "${SECBOX_KUBE_CACHE:-${HOME:-/root}/.cache/secbox-kube}")
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

bin=$cache/bin run=$cache/cluster pki=$cache/cluster/pki
socket=$run/cri/containerd.sock kubeconfig=$run/kubeconfig
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)
parts=(etcd kube-apiserver containerd kube-controller-manager kube-scheduler kubelet) # in the order of their start
api_port=16443 etcd_port=16379 peer_port=16380 kubelet_port=16250
bridge=secbox-kube gateway=10.99.0.1 pods=10.99.0.0/24 services=10.96.0.0/16 api_address=10.96.0.1
cgroup=secbox-kube
# The node's name leads to this machine without an entry in /etc/hosts.
node=localhost
# Directories outside the cache that containerd and the kubelet make.
outside=(/var/lib/kubelet /var/lib/cni /var/log/containers /run/containerd/runc/k8s.io)

kubectl() { "$bin/kubectl" --kubeconfig "$kubeconfig" "$@"; }
ctr() { command ctr -a "$socket" -n k8s.io "$@"; }
boot() { cat /proc/sys/kernel/random/boot_id; }

# started_at PID: when the process started, in ticks since boot; the same pid with another time is another process.
started_at() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	# shellcheck disable=SC2086 # words on purpose: the fields behind the name, from the third
	set -- ${stat##*) }
	[ "$1" != Z ] && echo "${20}"
}

alive() { # PART
	local pid at booted
	read -r pid at booted 2>/dev/null <"$run/pids/$1" || return 1
	[ "$booted" = "$(boot)" ] && [ "$(started_at "$pid")" = "$at" ]
}

start() { # PART COMMAND...
	local part=$1 pid
	shift
	if alive "$part"; then return; fi
	# A new session without this script's descriptors: it survives the script, and holds neither its lock nor a pipe of a caller.
	# The files of images belong to all users of a container.
	(umask 022 && exec setsid nohup "$@") >"$run/log/$part" 2>&1 </dev/null 9>&- &
	pid=$!
	echo "$pid $(started_at "$pid") $(boot)" >"$run/pids/$part"
}

stop() { # PART
	local pid waited=0
	if alive "$1"; then
		read -r pid _ <"$run/pids/$1"
		kill "$pid" 2>/dev/null || true
		while alive "$1"; do
			waited=$((waited + 1))
			[ "$waited" -ne 200 ] || kill -KILL "$pid" 2>/dev/null || true
			sleep 0.1
		done
	fi
	rm -f "$run/pids/$1"
}

await() { # PART SECONDS COMMAND...: returns when the command succeeds.
	local part=$1 end=$((SECONDS + $2))
	shift 2
	until "$@" >/dev/null 2>&1; do
		alive "$part" || fail "$part ended: $(tail -n 2 "$run/log/$part" | cut -c1-500)"
		[ "$SECONDS" -lt "$end" ] || fail "$part does not answer; look at $run/log/$part"
		sleep 0.3
	done
}

need() { # PROGRAM PACKAGE
	[ -x "$1" ] || have "$1" || apt_install "$2" || fail "the package $2 could not be installed; install it and run this again"
}

setup_programs() {
	local version name flags
	can_apt || fail "this needs root on Debian or Ubuntu"
	need openssl openssl
	need iptables iptables
	need ip iproute2
	have etcd || apt_install_idle etcd-server etcd || fail "the package etcd-server could not be installed; install it and run this again"
	need containerd containerd
	need runc runc
	need /usr/lib/cni/bridge containernetworking-plugins
	need /usr/share/doc/busybox-static busybox-static # the package busybox has the same program, not for a container without libraries
	within 20 docker info >/dev/null 2>&1 || fail "no Docker engine answers; run: make setup"
	have go || fail "Go is missing; run: make setup"
	version=$(sed -n 's|^require k8s.io/kubernetes ||p' scripts/kube/go.mod)
	flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")"
	mkdir -p "$bin"
	for name in "${programs[@]}"; do
		if [ "$(go version -m "$bin/$name" 2>/dev/null | awk '$1 == "mod" {print $2, $3}')" = "k8s.io/kubernetes $version" ]; then continue; fi
		say "building $name $version, once, at low priority"
		CGO_ENABLED=0 nice -n 19 ionice -c 3 go build -C scripts/kube -trimpath -ldflags "$flags" -o "$bin/$name.new" "k8s.io/kubernetes/cmd/$name" ||
			fail "$name could not be built; check the network, or point GOPROXY at a proxy that has the modules"
		mv "$bin/$name.new" "$bin/$name"
	done
}

# certificate NAME SUBJECT [NAMES]: a key and a certificate of the cluster's authority.
certificate() {
	[ ! -e "$pki/$1.crt" ] || return 0
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$pki/$1.key" -out "$pki/$1.csr" 2>/dev/null
	printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' "${3:-DNS:$1}" >"$pki/$1.ext"
	openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 3650 -extfile "$pki/$1.ext" -out "$pki/$1.new" 2>/dev/null
	mv "$pki/$1.new" "$pki/$1.crt"
}

kubeconfig() { # FILE USER
	cat >"$1" <<-END
		apiVersion: v1
		kind: Config
		clusters: [{name: secbox, cluster: {server: "https://127.0.0.1:$api_port", certificate-authority-data: $(base64 -w 0 <"$pki/ca.crt")}}]
		users: [{name: secbox, user: {$2}}]
		contexts: [{name: secbox, context: {cluster: secbox, user: secbox}}]
		current-context: secbox
	END
}
by_certificate() { echo "client-certificate: $pki/$1.crt, client-key: $pki/$1.key"; } # NAME

setup_keys() {
	local token
	[ -e "$pki/ca.crt" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=secbox-kube -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
	[ -e "$pki/accounts.key" ] || openssl genpkey -quiet -algorithm RSA -out "$pki/accounts.key" 2>/dev/null || openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
	certificate etcd /CN=etcd IP:127.0.0.1
	certificate kube-apiserver /O=system:masters/CN=kube-apiserver "IP:127.0.0.1,IP:$api_address,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
	certificate kube-controller-manager /CN=system:kube-controller-manager
	certificate kube-scheduler /CN=system:kube-scheduler
	certificate kubelet "/O=system:nodes/CN=system:node:$node" "IP:127.0.0.1,DNS:$node"
	for part in kube-controller-manager kube-scheduler kubelet; do kubeconfig "$run/$part.kubeconfig" "$(by_certificate "$part")"; done
	if [ ! -e "$kubeconfig" ]; then
		token=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
		echo "$token,secbox-admin,secbox-admin,system:masters" >"$pki/tokens.csv"
		kubeconfig "$kubeconfig.new" "token: $token"
		mv "$kubeconfig.new" "$kubeconfig"
	fi
}

# The alias of the bridge names the cluster's directory. Without a bridge, cgroups of the name are left of a cluster that ended with the machine.
owner() { cat "/sys/class/net/$bridge/ifalias" 2>/dev/null; }
ours() { [ ! -e "/sys/class/net/$bridge" ] || [ "$(owner)" = "$run" ]; }

# rules ACTION: the rules of the firewall for packets of pods to this machine, with -I or -D. They reach the API server, and answer probes.
rules() {
	iptables -w -t nat "$1" PREROUTING -i "$bridge" -d "$api_address" -p tcp --dport 443 -j DNAT --to-destination "127.0.0.1:$api_port"
	iptables -w "$1" INPUT -i "$bridge" -m conntrack ! --ctstate DNAT,RELATED,ESTABLISHED -j DROP
}

setup_network() {
	if [ -e "/sys/class/net/$bridge" ]; then return; fi
	ip link add "$bridge" type bridge
	ip link set "$bridge" alias "$run"
	ip addr add "$gateway/${pods#*/}" dev "$bridge"
	ip link set "$bridge" up
	sysctl -q -w "net.ipv4.conf.$bridge.route_localnet=1" # for the rule that leads to 127.0.0.1
	rules -I
}

setup_cgroup() {
	local dir
	if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
		for dir in cpuset cpu io memory hugetlb pids; do echo "+$dir" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true; done
	fi
	for dir in $(cgroups); do mkdir -p "$dir/$cgroup"; done
}
# cgroups: the roots of the controllers, of either version.
cgroups() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts | sort -u; }

write_config() {
	cat >"$run/cni/10-secbox.conflist" <<-END
		{"cniVersion": "0.4.0", "name": "secbox-kube", "plugins": [{"type": "bridge", "bridge": "$bridge", "isDefaultGateway": true, "ipMasq": false,
		 "ipam": {"type": "host-local", "subnet": "$pods", "dataDir": "$run/cni/addresses"}}]}
	END
	cat >"$run/cri/config.toml" <<-END
		version = 2
		root = "$run/cri/root"
		state = "$run/cri/state"
		[grpc]
		  address = "$socket"
		[plugins."io.containerd.internal.v1.opt"]
		  path = "$run/cri/opt"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "docker.io/library/secbox-kube-pause:1"
		  netns_mounts_under_state_dir = true
		  restrict_oom_score_adj = true # a machine in a virtual machine may lack the capability to lower it
		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "/usr/lib/cni"
		    conf_dir = "$run/cni"
		  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
		    runtime_type = "io.containerd.runc.v2"
		  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
		    runtime_type = "io.containerd.runc.v2"
		    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
		      BinaryName = "crun"
	END
	cat >"$run/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		address: 127.0.0.1
		port: $kubelet_port
		healthzPort: 0
		readOnlyPort: 0
		tlsCertFile: $pki/kubelet.crt
		tlsPrivateKeyFile: $pki/kubelet.key
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
		authorization: {mode: Webhook}
		containerRuntimeEndpoint: unix://$socket
		cgroupDriver: cgroupfs
		cgroupRoot: /$cgroup
		enforceNodeAllocatable: []
		failSwapOn: false
		failCgroupV1: false
		makeIPTablesUtilChains: false
		podPidsLimit: 512
		podLogsDir: $run/kubelet/pod-logs
		volumePluginDir: $run/kubelet/volume-plugins
		# No pod is evicted and no image removed because the machine's disk is full of other things.
		evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
		imageGCHighThresholdPercent: 100
	END
}

copy_image() { # TAG
	local id copied=$run/images/${1//\//+}
	id=$(docker image inspect -f '{{.Id}}' "$1" 2>/dev/null) || fail "the Docker engine has no image $1; build or pull it first"
	if [ "$id" = "$(cat "$copied" 2>/dev/null)" ]; then return; fi
	docker save "$1" | ctr images import - >/dev/null || fail "the image $1 could not be copied into the cluster"
	echo "$id" >"$copied"
	say "image: $1, $(cut -c8-19 <<<"$id")"
}

# The process that keeps the namespaces of a pod.
copy_pause() {
	local dir tag=secbox-kube-pause:1
	if [ -e "$run/images/$tag" ]; then return; fi
	scratch dir
	cp "$(command -v busybox)" "$dir/busybox"
	printf 'FROM scratch\nCOPY busybox /busybox\nENTRYPOINT ["/busybox", "sleep", "2147483647"]\n' >"$dir/Dockerfile"
	docker build -q -t "$tag" "$dir" >"$run/log/pause" 2>&1 || fail "the image of pods could not be built; look at $run/log/pause"
	copy_image "$tag"
	docker rmi -f "$tag" >/dev/null
}

start_containerd() { start containerd containerd --config "$run/cri/config.toml" && await containerd 60 ctr version; }

up() {
	local dir controllers
	ours || fail "this machine has a cluster in $(owner) already; end it first: SECBOX_KUBE_CACHE=$(dirname "$(owner)") scripts/kube.sh down"
	setup_programs
	umask 077
	mkdir -p "$run"/{pids,log,images,pki,etcd,kubelet,cni,cri}
	if [ ! -e "$run/made" ]; then
		for dir in "${outside[@]}"; do [ -e "$dir" ] || echo "$dir"; done >"$run/made.new"
		mv "$run/made.new" "$run/made"
	fi
	setup_keys
	write_config
	setup_network
	setup_cgroup

	start etcd etcd --name secbox --data-dir "$run/etcd" --unsafe-no-fsync --logger zap --log-level warn \
		--listen-client-urls "https://127.0.0.1:$etcd_port" --advertise-client-urls "https://127.0.0.1:$etcd_port" \
		--listen-peer-urls "https://127.0.0.1:$peer_port" --initial-advertise-peer-urls "https://127.0.0.1:$peer_port" \
		--initial-cluster "secbox=https://127.0.0.1:$peer_port" \
		--client-cert-auth --trusted-ca-file "$pki/ca.crt" --cert-file "$pki/etcd.crt" --key-file "$pki/etcd.key" \
		--peer-client-cert-auth --peer-trusted-ca-file "$pki/ca.crt" --peer-cert-file "$pki/etcd.crt" --peer-key-file "$pki/etcd.key"
	start kube-apiserver "$bin/kube-apiserver" --bind-address 127.0.0.1 --secure-port "$api_port" --advertise-address "$gateway" --endpoint-reconciler-type none \
		--etcd-servers "https://127.0.0.1:$etcd_port" --etcd-cafile "$pki/ca.crt" --etcd-certfile "$pki/etcd.crt" --etcd-keyfile "$pki/etcd.key" \
		--tls-cert-file "$pki/kube-apiserver.crt" --tls-private-key-file "$pki/kube-apiserver.key" --client-ca-file "$pki/ca.crt" \
		--anonymous-auth=false --token-auth-file "$pki/tokens.csv" --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
		--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/accounts.key" --service-account-signing-key-file "$pki/accounts.key" \
		--service-cluster-ip-range "$services" --profiling=false --feature-gates SizeBasedListCostEstimate=false \
		--kubelet-preferred-address-types Hostname --kubelet-certificate-authority "$pki/ca.crt" \
		--kubelet-client-certificate "$pki/kube-apiserver.crt" --kubelet-client-key "$pki/kube-apiserver.key"
	start_containerd
	copy_pause
	await kube-apiserver 180 kubectl get --raw /readyz

	controllers=namespace-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller
	controllers+=,garbage-collector-controller,pod-garbage-collector-controller,node-lifecycle-controller,taint-eviction-controller
	controllers+=,persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller
	controllers+=,deployment-controller,replicaset-controller,statefulset-controller,disruption-controller,endpointslice-controller,resourcequota-controller
	start kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$run/kube-controller-manager.kubeconfig" --leader-elect=false --secure-port 0 \
		--use-service-account-credentials --service-account-private-key-file "$pki/accounts.key" --root-ca-file "$pki/ca.crt" \
		--controllers "$controllers" --node-monitor-grace-period 5m --profiling=false
	start kube-scheduler "$bin/kube-scheduler" --kubeconfig "$run/kube-scheduler.kubeconfig" --leader-elect=false --secure-port 0 --profiling=false
	start kubelet "$bin/kubelet" --config "$run/kubelet.yaml" --kubeconfig "$run/kubelet.kubeconfig" --root-dir "$run/kubelet" \
		--hostname-override "$node" --node-ip "$gateway"
	if docker image inspect secbox-sandbox:latest >/dev/null 2>&1; then copy_image secbox-sandbox:latest; fi
	await kube-controller-manager 120 kubectl get serviceaccount default
	await kubelet 180 kubectl wait --for=condition=Ready --timeout=5s "node/$node"
	if have crun; then
		kubectl apply -f - >/dev/null <<<'{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "crun"}, "handler": "crun"}'
	fi
	status
	say "kubeconfig: $kubeconfig"
	say "kubectl: $bin/kubectl"
}

status() {
	local part missing=0
	for part in "${parts[@]}"; do
		if alive "$part"; then
			say "$part: runs, pid $(cut -d' ' -f1 "$run/pids/$part")"
		else
			say "$part: does not run"
			missing=1
		fi
	done
	[ "$missing" = 0 ] || return 1
	say "node: $(kubectl get nodes --no-headers -o wide | awk '{print $1, $2, $5}'), $(kubectl get pods -A --no-headers 2>/dev/null | wc -l) pods"
}

# left: what of the cluster is still there. Arguments of processes name the cluster's directory: containerd's shims are started with its socket.
left() {
	local dir words
	awk -v run="$run/" 'index($5, run) == 1 { print "mount " $5 }' /proc/self/mountinfo
	for dir in /proc/[0-9]*; do
		words=$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline") || continue
		case $words in *"$run/"*) echo "process ${dir#/proc/} ${words%% *}" ;; esac
	done
	ours || return 0
	for dir in $(cgroups); do [ ! -e "$dir/$cgroup" ] || echo "cgroup $dir/$cgroup"; done
	[ ! -e "/sys/class/net/$bridge" ] || echo "bridge $bridge"
}

down() {
	local dir mount id remains
	if [ ! -e "$run" ]; then
		say "there is no cluster in $run"
		return
	fi
	# The kubelet ends the pods, unmounts their volumes and takes their addresses back, if it can.
	stop kube-controller-manager
	stop kube-scheduler
	if alive kubelet && alive kube-apiserver && alive etcd && alive containerd; then
		kubectl delete pods --all -A --now --wait --timeout 60s >/dev/null 2>&1 || say "some pods did not end in time; their processes are killed"
	fi
	stop kubelet
	if [ -e "$run/cri/root" ]; then
		# Containers outlive a containerd that has ended, so another one kills them.
		start_containerd
		for id in $(ctr tasks list -q); do ctr tasks delete --force "$id" >/dev/null 2>&1 || true; done
		for id in $(ctr containers list -q); do ctr containers delete "$id" >/dev/null 2>&1 || true; done
	fi
	stop containerd
	stop kube-apiserver
	stop etcd
	awk -v run="$run/" 'index($5, run) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r mount; do umount -l "$mount" || true; done
	if ours; then
		if [ -e "/sys/class/net/$bridge" ]; then
			rules -D || true
			ip link delete "$bridge"
		fi
		for dir in $(cgroups); do
			[ ! -e "$dir/$cgroup" ] || find "$dir/$cgroup" -depth -type d -exec rmdir {} + || true
		done
	fi
	remains=$(left)
	[ -z "$remains" ] || fail "the cluster left this behind; run this again: $remains"
	[ ! -e "$run/made" ] || while read -r dir; do rm -rf --one-file-system "$dir"; done <"$run/made"
	rm -rf --one-file-system "$run"
	say "the cluster is gone: no process, no mount, no cgroup, no bridge; the programs stay in $bin"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
up | down | image)
	[ "$(id -u)" = 0 ] || fail "this needs root: sudo scripts/kube.sh $command"
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	;;
esac
case $command in
up) up ;;
down) down ;;
status) status ;;
image)
	[ $# -gt 0 ] || fail "usage: scripts/kube.sh image TAG..."
	alive containerd || fail "the cluster does not run; run: scripts/kube.sh up"
	for tag in "$@"; do copy_image "$tag"; done
	;;
*) fail "usage: scripts/kube.sh up | down | status | image TAG..." ;;
esac
