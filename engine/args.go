package engine

import (
	"strconv"
	"strings"
)

// Labels that every container of ours carries; a node removes only what bears its own.
const (
	LabelInstallation = "secbox.installation"
	LabelNode         = "secbox.node"
	LabelExec         = "secbox.exec"
	LabelProject      = "secbox.project"
)

// Where sandbox-init lies: in our image, and in the read-only volume filled from ours for images that do not have it.
const (
	initDir  = "/opt/secbox"
	initPath = initDir + "/sandbox-init"
)

// Identity is what containers are labelled with.
type Identity struct {
	Installation string
	Node         string
}

// containerName is how a container of an exec is found again without asking for labels.
func containerName(execID string) string { return "secbox-" + execID }

// runArgs is the whole docker argv for a container. Nothing of the job is in it, and nothing of a request but numbers that policy has
// bounded, ids whose alphabet is checked, and mount sources that workspace built.
func runArgs(id Identity, o Options, spec Spec, execID string, mounts []Mount) []string {
	memory := strconv.FormatInt(spec.Limits.MemoryMB, 10) + "m"
	args := []string{
		"run", "-i", "--rm", "--sig-proxy=false",
		"--name", containerName(execID),
		"--label", LabelInstallation + "=" + id.Installation,
		"--label", LabelNode + "=" + id.Node,
		"--label", LabelExec + "=" + execID,
		"--label", LabelProject + "=" + spec.ProjectID,
		"--network=none",
		"--cap-drop=ALL",
		"--security-opt=no-new-privileges",
		"--pids-limit", strconv.FormatInt(spec.Limits.PIDs, 10),
		"--memory", memory,
		"--memory-swap", memory,
		"--cpus", cpus(spec.Limits.CPUCores),
		"--user", spec.User,
		"--workdir", workdir(mounts),
		"--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(spec.Limits.TmpMB, 10) + "m",
		"--log-driver=none",
		"--stop-signal=SIGKILL", // init ignores all others; without this an engine that ends waits ten seconds for each container
		"--pull=never",
		"--entrypoint", initPath,
	}
	if spec.Runtime != "" {
		args = append(args, "--runtime", spec.Runtime)
	}
	if o.Seccomp != "" {
		args = append(args, "--security-opt=seccomp="+o.Seccomp)
	}
	if o.ReadOnlyRootfs {
		args = append(args, "--read-only")
	}
	for _, m := range mounts {
		args = append(args, "--mount", bindMount(m))
	}
	if spec.InitVolume != "" {
		args = append(args, "--mount", "type=volume,source="+spec.InitVolume+",target="+initDir+",readonly,volume-nocopy")
	}
	return append(args, spec.ImageID)
}

// cpus writes cores with the nine decimals that docker takes; more of them, as in a third, are "too precise".
func cpus(cores float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(cores, 'f', 9, 64), "0"), ".")
}

// workdir is the container's; the job's own is made by sandbox-init. The engine would create a directory that is not there.
func workdir(mounts []Mount) string {
	for _, m := range mounts {
		if m.Target == "/workspace/work" {
			return m.Target
		}
	}
	return "/"
}

// bindMount uses --mount, which refuses a source that does not exist; -v would make it. The value is CSV: workspace refuses roots with a
// comma, and ids have none.
func bindMount(m Mount) string {
	var b strings.Builder
	b.WriteString("type=bind,source=")
	b.WriteString(m.Source)
	b.WriteString(",target=")
	b.WriteString(m.Target)
	if m.ReadOnly {
		b.WriteString(",readonly")
	}
	return b.String()
}
