#!/usr/bin/env bash
# Section 5 of the CIS Docker Benchmark, as docker-bench-security checks it, for the containers of a core-api while an exec runs: container.sh, with URL
# of core-api in the environment. Left out are 5.2 (SELinux), 5.18 (ulimits in place of the engine's), 5.26 (health checks of services), 5.27 (pulls of images).
set -euo pipefail

call() { curl -sS --fail-with-body --max-time 60 "$@"; }

exec=$(call "$URL/sandbox/execs" -H 'Content-Type: application/json' -H 'Prefer: respond-async' \
	-d '{"project_id": "interop-container", "exec": {"script": "sleep 300"}}' | jq -r .exec_id)
trap 'call -o /dev/null -X POST "$URL/sandbox/execs/$exec/cancel"' EXIT
row=
inspected=
for _ in $(seq 300); do
	row=$(call "$URL/sandbox/execs/$exec")
	ids=$(docker ps -q --filter "label=secbox.node=$(jq -r .node_id <<<"$row")")
	# Containers that wait come and go: one may be gone before it is inspected.
	# shellcheck disable=SC2086 # ids are words
	[ "$(jq -r .status <<<"$row")" = running ] && [ -n "$ids" ] && inspected=$(docker inspect $ids 2>/dev/null) && break
	inspected=
	sleep 0.1
done
[ -n "$inspected" ] || { echo "the exec has no container" >&2; exit 1; }

wrong=$(jq -r --argjson apparmor "$(docker info --format '{{json .SecurityOptions}}' | jq 'any(contains("apparmor"))')" '
	def capabilities: [(.HostConfig.CapAdd // [])[] | ltrimstr("CAP_")];
	.[] | . as $c | .HostConfig as $h | [
	["5.1 AppArmor", (($apparmor | not) or $c.AppArmorProfile != "unconfined" and $c.AppArmorProfile != "")],
	["5.3 capabilities", ($h.CapDrop == ["ALL"] and capabilities == [])],
	["5.4 privileged", ($h.Privileged | not)],
	["5.5 directories of the host", ([$c.Mounts[] | .Source | select(test("^/(boot|dev|etc|lib|proc|sys|usr)?$"))] == [])],
	["5.6 a server for ssh", ([$c.Config.Entrypoint[], ($c.Config.Cmd // [])[] | select(test("sshd"))] == [])],
	["5.7, 5.8, 5.13 ports", (($h.PortBindings // {}) == {} and ($c.NetworkSettings.Ports // {}) == {} and ($h.PublishAllPorts | not))],
	["5.9, 5.29 network", ($h.NetworkMode == "none")],
	["5.10 memory", ($h.Memory > 0 and $h.MemorySwap == $h.Memory)],
	["5.11 CPU", ($h.NanoCpus > 0 or $h.CpuQuota > 0)],
	["5.12 root file system", $h.ReadonlyRootfs],
	["5.14 restarts", ($h.RestartPolicy.Name == "no")],
	["5.15 processes of the host", ($h.PidMode == "")],
	["5.16 IPC of the host", ($h.IpcMode == "private" or $h.IpcMode == "none")],
	["5.17 devices", (($h.Devices // []) == [] and ($h.DeviceRequests // []) == [])],
	["5.19 propagation of mounts", ([$c.Mounts[] | .Propagation | select(. == "shared" or . == "rshared")] == [])],
	["5.20 UTS of the host", ($h.UTSMode != "host")],
	["5.21 seccomp", ([$h.SecurityOpt[] | select(startswith("seccomp") and . != "seccomp=unconfined")] != [])],
	["5.22, 5.23 root", ($c.Config.User | test("^[1-9][0-9]*:[1-9][0-9]*$"))],
	["5.24 cgroup", ($h.CgroupParent == "")],
	["5.25 new privileges", ([$h.SecurityOpt[] | select(startswith("no-new-privileges"))] != [])],
	["5.28 processes", ($h.PidsLimit > 0)],
	["5.30 user namespace of the host", ($h.UsernsMode != "host")],
	["5.31 socket of the engine", ([$c.Mounts[] | .Source | select(test("docker\\.sock"))] == [])]
	] | map(select(.[1] | not) | .[0]) | select(. != []) | "\($c.Name): \(join(", "))"' <<<"$inspected")
[ -z "$wrong" ] || { echo "$wrong" | paste -sd ' ' >&2; exit 1; }
