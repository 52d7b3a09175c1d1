package health

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"secbox/engine/dockercli"
	"secbox/fault"
)

// engineInfo is `docker info`, with the limits that the engine's kernel can enforce; nil where it
// does not report them.
type engineInfo struct {
	dockercli.Info
	MemoryLimit *bool
	SwapLimit   *bool
	CPUCfsQuota *bool     `json:"CpuCfsQuota"`
	PIDsLimit   *bool     `json:"PidsLimit"`
	Host        *struct{} // only podman's own command has this
	Cluster     string    `json:"-"` // the version of the cluster that is the engine; else empty
}

var errPodmanCommand = errors.New("the docker command is podman's own, which prints another `docker info`")

// askInfo is dockercli's Info with more fields in one call, since each call starts a process.
func askInfo(ctx context.Context, cli *dockercli.CLI) (engineInfo, error) {
	out, err := cli.Output(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return engineInfo{}, err
	}
	var info engineInfo
	if err := json.Unmarshal(out, &info); err != nil {
		return engineInfo{}, fault.Wrap(fault.Internal, err, "`docker info` printed no JSON")
	}
	if info.Host != nil {
		return engineInfo{}, fault.Wrap(fault.EngineUnavailable, errPodmanCommand, "the docker command is podman's own")
	}
	if err := info.Err(); err != nil {
		return engineInfo{}, err
	}
	if info.ServerVersion == "" {
		return engineInfo{}, fault.New(fault.EngineUnavailable, "the Docker engine does not answer")
	}
	return info, nil
}

// podmanProblems returns the problems with podman as the engine.
func (c *Checker) podmanProblems(i engineInfo) []Problem {
	problem := func(reason, remedy string) []Problem {
		return []Problem{{Check: "podman", Reason: reason, Remedy: remedy, code: fault.EngineUnavailable}}
	}
	switch {
	case i.IsPodman() != c.cfg.Podman:
		return problem("the engine is another one than when core-api started: one of the two is podman", "restart core-api")
	case i.IsPodman() && c.cfg.OwnSeccomp:
		return problem("the engine is podman, which takes no seccomp profile from docker's command, so no container starts",
			"set sandbox.seccomp to engine")
	}
	return nil
}

// warnings are the problems of an engine that answers, for containers of a user, uid:gid, with
// directories of a volume or of the engine's machine.
func (i engineInfo) warnings(user string, inVolume bool) []Problem {
	if i.Cluster != "" {
		return nil
	}
	var p []Problem
	add := func(check, reason, remedy string) {
		p = append(p, Problem{Check: check, Reason: reason, Remedy: remedy})
	}
	if i.OSType != "" && i.OSType != "linux" {
		p = append(p, Problem{
			Check: "engine", Reason: "the Docker engine runs " + i.OSType + " containers",
			Remedy: "switch Docker Desktop to Linux containers",
			code:   fault.EngineUnavailable,
		})
		return p
	}
	// podman denies limits that it enforces: the doctor measures
	missing := func(limit *bool) bool { return limit != nil && !*limit && !i.IsPodman() }
	if missing(i.MemoryLimit) {
		add("memory_limit", "the engine's kernel cannot limit memory, so memory_mb is not enforced",
			"enable the memory cgroup on the engine's host: boot it with cgroup_enable=memory, or use cgroup v2")
	}
	if missing(i.SwapLimit) {
		add("swap_limit", "the engine's kernel cannot limit swap, so a job may swap beyond memory_mb",
			"boot the engine's host with swapaccount=1, use cgroup v2, or turn its swap off")
	}
	if missing(i.CPUCfsQuota) {
		add("cpu_limit", "the engine's kernel cannot limit CPU time, so cpu_cores is not enforced",
			"use a kernel with CONFIG_CFS_BANDWIDTH on the engine's host; for a rootless engine, delegate the cpu controller")
	}
	if missing(i.PIDsLimit) {
		add("pids_limit", "the engine's kernel cannot limit processes, so pids is not enforced",
			"enable the pids cgroup on the engine's host; for a rootless engine, delegate the pids controller")
	}
	if !i.HasOption("seccomp") {
		add("seccomp", "the engine filters no system calls", "use an engine built with seccomp and a kernel with CONFIG_SECCOMP_FILTER")
	} else if i.Option("seccomp")["profile"] == "unconfined" {
		add("seccomp", "the engine's default seccomp profile is switched off",
			"remove seccomp-profile=unconfined from the engine's daemon.json and restart it")
	}
	rootless, root := i.HasOption("rootless"), strings.HasPrefix(user, "0:")
	switch {
	case rootless && !root:
		add("rootless", "the engine is rootless: user "+user+
			" of its containers is another user on the disk, so jobs cannot write into work/ and artifacts/",
			"run core-api as the user whose engine it is, and leave sandbox.user out; if the engine was started after core-api, restart "+
				"core-api")
	case root && !rootless:
		p = append(p, Problem{
			Check: "rootless", Reason: "the engine was rootless when core-api started and is not now, so jobs would run as root",
			Remedy: "restart core-api", code: fault.EngineUnavailable,
		})
	}
	if i.HasOption("userns") {
		add("userns", "the engine remaps users (userns-remap), so jobs may not be able to write into the workspace",
			"run `core-api doctor`; if it complains about mounts, switch userns-remap off in the engine's daemon.json")
	}
	if strings.Contains(i.OperatingSystem, "Docker Desktop") && !inVolume {
		add("docker_desktop",
			"Docker Desktop uses a file share for bind mounts: files are slow, and owners and modes are not the real ones",
			"none for development; in production use an engine on Linux, and on Windows keep the workspace in a volume (docker-compose.yml) or "+
				"in WSL's own file system")
	}
	return p
}
