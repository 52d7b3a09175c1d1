package engine

import (
	"slices"
	"strconv"
	"strings"

	"secbox/engine/initproto"
	"secbox/policy"
)

// Labels of all containers. A node removes only containers with its own label.
const (
	LabelInstallation = "secbox.installation"
	LabelNode         = "secbox.node"
	LabelExec         = "secbox.exec"
	LabelProject      = "secbox.project"
)

// InitPath is the path of sandbox-init, in our image and, for images without it, in a read-only
// volume that is filled from our image.
const (
	initDir  = "/opt/secbox"
	InitPath = initDir + "/sandbox-init" // commands may run it to search, see sandbox/search
)

// Identity is written into the labels of containers.
type Identity struct {
	Installation string
	Node         string
}

// containerName is the name of an exec's container.
func containerName(execID string) string { return "secbox-" + execID }

// runArgs is the docker argv for a container. It has nothing of the job, and of the request only
// numbers that policy has bounded, ids whose alphabet was checked, and mount sources that workspace
// built. With points, the container is for any project.
func runArgs(id Identity, o Options, spec Spec, execID string, mounts []Mount, points *mountPoints) []string {
	limits := limitsOf(spec)
	args := append([]string{
		"run", "-i", "--rm", "--sig-proxy=false",
		"--name", containerName(execID),
		"--label", LabelInstallation + "=" + id.Installation,
		"--label", LabelNode + "=" + id.Node,
		"--label", LabelExec + "=" + execID,
		"--network=none",
		"--hostname", hostName, "--add-host", hostName + ":127.0.0.1", // programs look their own name up
		"--cap-drop=ALL",
		"--security-opt=no-new-privileges",
		"--user", spec.User,
		"--workdir", workdir(mounts, points),
		"--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(spec.Limits.TmpMB, 10) + "m",
		"--shm-size", strconv.FormatInt(shmMB(spec.Limits), 10) + "m",
		"--log-driver=none",
		"--stop-signal=SIGKILL", // init ignores all others, and an engine that shuts down would wait ten seconds for each container
		"--pull=never",
		"--no-healthcheck", // nothing of the image runs beside the job
		"--entrypoint", InitPath,
	}, limitArgs(limits)...)
	if spec.ProjectID != "" {
		args = append(args, "--label", LabelProject+"="+spec.ProjectID)
	}
	if spec.Runtime != "" {
		args = append(args, "--runtime", spec.Runtime)
	}
	if o.Seccomp != "" {
		args = append(args, "--security-opt=seccomp="+o.Seccomp)
	}
	if !o.Podman { // it refuses these without a network
		args = append(args, "--dns", noNameServer, "--dns-search", ".")
	}
	if o.ReadOnlyRootfs {
		args = append(args, "--read-only")
		if o.Podman { // it would mount a writable tmpfs of any size there
			args = append(args, "--tmpfs", "/run:ro,size=4k", "--tmpfs", "/var/tmp:ro,size=4k")
		}
	}
	for _, m := range mounts {
		args = append(args, "--mount", mountOf(m, o.WorkspaceVolume))
	}
	if points != nil {
		args = append(args, points.arguments()...)
	}
	args = append(args, closedVolumes(spec.Volumes, mounts, points)...)
	if spec.InitVolume != "" {
		args = append(args, "--mount", "type=volume,source="+spec.InitVolume+",target="+initDir+",readonly,volume-nocopy")
	}
	args = append(args, spec.ImageID)
	return append(args, InitArgs(spec)...)
}

// InitArgs are the arguments of sandbox-init.
func InitArgs(spec Spec) []string {
	if spec.Serve {
		return []string{"--serve", initproto.ServeVersion}
	}
	return nil
}

// limitsOf returns the limits of a container itself.
func limitsOf(spec Spec) policy.ContainerLimits {
	if spec.Serve {
		spec.Limits.PIDs += residentPIDs
	}
	return spec.Limits
}

// limitArgs are the limits that docker can change while a container runs.
func limitArgs(l policy.ContainerLimits) []string {
	memory := strconv.FormatInt(l.MemoryMB, 10) + "m"
	return []string{"--pids-limit", strconv.FormatInt(l.PIDs, 10), "--memory", memory, "--memory-swap", memory, "--cpus", cpus(l.CPUCores)}
}

// fixed returns the limits that a running container keeps: all but the limits in limitArgs.
func fixed(l policy.ContainerLimits) policy.ContainerLimits {
	l.PIDs, l.MemoryMB, l.CPUCores = 0, 0, 0
	return l
}

// cpus formats cores with at most nine decimals: docker refuses more as "too precise".
func cpus(cores float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(cores, 'f', 9, 64), "0"), ".")
}

// shmMB is the size of /dev/shm in MiB. What is in it counts into the memory. If no less than that
// is allowed, the memory is the limit, and the size is the same for all, so that a container whose
// memory is changed fits.
func shmMB(l policy.ContainerLimits) int64 {
	const more = 64 << 10
	if l.ShmMB >= l.MemoryMB && l.MemoryMB <= more {
		return more
	}
	return l.ShmMB
}

// hostName is the host name of all containers, so that a replay sees the same.
const hostName = "sandbox"

// noNameServer stands in a container's resolv.conf for the host's name servers, which the engine
// would copy although they cannot be reached. It is an address for documentation (RFC 5737). For a
// loopback address, the docker CLI prints a warning.
const noNameServer = "192.0.2.1"

// workdir is the container's working directory, which must exist: the engine would create it.
// sandbox-init changes to the job's.
func workdir(mounts []Mount, points *mountPoints) string {
	const work = "/workspace/work"
	if points != nil || slices.ContainsFunc(mounts, func(m Mount) bool { return m.Target == work }) {
		return work
	}
	return "/"
}

// mountOf formats a value of --mount, which, unlike -v, refuses a source that does not exist, also
// in a volume. The value is CSV: workspace refuses roots with a comma, and ids have none.
func mountOf(m Mount, volume string) string {
	value := "type=bind,source=" + m.Source + ",target=" + m.Target
	if volume != "" {
		// volume-nocopy: an empty volume is not filled with the image's files at the target
		value = "type=volume,source=" + volume + ",volume-subpath=" + m.Source + ",target=" + m.Target + ",volume-nocopy"
	}
	if m.ReadOnly {
		value += ",readonly"
	}
	return value
}
