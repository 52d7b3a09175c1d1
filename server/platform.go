package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"secbox/engine/dockercli"
	"secbox/pathadapter"
	"secbox/settings"
)

// newAdapter detects the platform for the path adapter.
func newAdapter(s settings.Settings, cli *dockercli.CLI) (pathadapter.Adapter, error) {
	procVersion, _ := os.ReadFile("/proc/version")
	isWSL, inContainer := pathadapter.Detect(pathadapter.Facts{
		GOOS: runtime.GOOS, ProcVersion: string(procVersion), Getenv: os.Getenv,
		DockerEnv: exists("/.dockerenv") || exists("/run/.containerenv"),
	})
	return pathadapter.New(pathadapter.Config{
		Mode: pathadapter.Mode(s.Sandbox.RuntimeMode), GOOS: runtime.GOOS, IsWSL: isWSL, InContainer: inContainer,
		Root: s.Sandbox.WorkspaceRoot, RootWin: s.Sandbox.WorkspaceRootWin, RootWSL: s.Sandbox.WorkspaceRootWSL,
		RootHost: s.Sandbox.WorkspaceRootHost, Volume: s.Sandbox.WorkspaceVolume, DockerIsExe: cli.IsExe(), Wslpath: wslpath(),
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// wslpath returns a function that runs the program wslpath, or nil if there is none.
func wslpath() func(path string, toWindows bool) (string, error) {
	program, err := exec.LookPath("wslpath")
	if err != nil {
		return nil
	}
	return func(path string, toWindows bool) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		form := "-u"
		if toWindows {
			form = "-w"
		}
		out, err := exec.CommandContext(ctx, program, form, path).Output()
		if err != nil {
			return "", fmt.Errorf("wslpath %s %s: %w", form, path, err)
		}
		return strings.TrimSpace(string(out)), nil
	}
}

// standardUser is the user of containers, unless there is a reason for another.
const standardUser = "1000:1000"

// newClusterAdapter is the path adapter for a cluster: pods get directories of the volume of a
// claim, never of a machine.
func newClusterAdapter(s settings.Settings) (pathadapter.Adapter, error) {
	return pathadapter.New(pathadapter.Config{
		Mode: pathadapter.Container, GOOS: runtime.GOOS, InContainer: true, Root: s.Sandbox.WorkspaceRoot,
		Volume: cmp.Or(s.Sandbox.Kubernetes.VolumeClaim, "none"),
	})
}

// sandboxUser returns the uid:gid of every container. On native Linux, a core-api that is neither
// root nor uid 1000 cannot create directories for uid 1000, so its containers run as its own user.
// For a rootless engine that user is root in the container, and no other can write into the
// workspace; the rootless engine is pinned, so that another one, whose root is the machine's, never
// gets such a container.
func sandboxUser(ctx context.Context, s settings.Settings, mode pathadapter.Mode, cli *dockercli.CLI, engine dockercli.Info) string {
	uid, gid := os.Geteuid(), os.Getegid()
	switch {
	case s.Sandbox.User != "":
		return s.Sandbox.User
	case mode != pathadapter.Linux || runtime.GOOS != "linux" || uid == 0:
		return standardUser
	case engine.HasOption("rootless") && cli.Pin(ctx) == nil:
		return "0:0"
	case uid == 1000:
		return standardUser
	default:
		return strconv.Itoa(uid) + ":" + strconv.Itoa(gid)
	}
}

// owner returns the uid and gid of the directories that jobs write to, or -1 to keep core-api's
// own.
func owner(user string) (uid, gid int) {
	if os.Geteuid() != 0 { // also on Windows
		return -1, -1
	}
	u, g, _ := strings.Cut(user, ":")
	uid, errU := strconv.Atoi(u)
	gid, errG := strconv.Atoi(g)
	if errU != nil || errG != nil {
		return -1, -1
	}
	return uid, gid
}
