package pathadapter

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"secbox/fault"
)

// Mode says which rules apply.
type Mode string

// The modes, as runtime_mode in the settings spells them.
const (
	Auto      Mode = "auto"      // decided from GOOS, IsWSL and InContainer
	Linux     Mode = "linux"     // Linux and macOS: both forms are the same
	Windows   Mode = "windows"   // both forms are D:\…
	WSL       Mode = "wsl"       // native is /…; docker is given the same, or D:\… when the CLI is docker.exe
	Container Mode = "container" // core-api in a container with the engine's socket: the forms differ by a prefix, or the root is a volume
)

// The settings that errors name.
const (
	settingMode     = "sandbox.runtime_mode"
	settingRoot     = "sandbox.workspace_root"
	settingRootWin  = "sandbox.workspace_root_win"
	settingRootWSL  = "sandbox.workspace_root_wsl"
	settingRootHost = "sandbox.workspace_root_host"
	settingVolume   = "sandbox.workspace_volume"
)

// Config holds the settings and the facts about the system that an Adapter needs.
type Config struct {
	Mode Mode // "" is Auto

	GOOS        string // "" is runtime.GOOS
	IsWSL       bool   // see Detect
	InContainer bool   // see Detect

	// sandbox.workspace_root: Linux, macOS, and the inside in container mode. Elsewhere used when
	// neither RootWin nor RootWSL is set
	Root     string
	RootWin  string // sandbox.workspace_root_win: D:\ws
	RootWSL  string // sandbox.workspace_root_wsl: /mnt/d/ws
	RootHost string // sandbox.workspace_root_host: the workspace root as the docker engine's host sees it
	Volume   string // sandbox.workspace_volume: the volume that is the workspace root; used without RootHost

	DockerIsExe bool // the docker CLI that was found is docker.exe, so its paths are Windows paths

	// Wslpath converts a path as the program of that name does; nil where there is none.
	Wslpath func(path string, toWindows bool) (string, error)
}

// Adapter knows the workspace root in both forms. It is immutable and safe for concurrent use. The
// zero Adapter answers every question with an error.
type Adapter struct {
	mode   Mode
	native root
	docker root
	volume string // docker is given paths in it; empty: paths of its machine
}

// New checks the roots and decides the mode. Its errors carry fault.InvalidSettings and name the
// setting to change.
func New(c Config) (Adapter, error) {
	if c.GOOS == "" {
		c.GOOS = runtime.GOOS
	}
	mode, err := decideMode(c)
	if err != nil {
		return Adapter{}, err
	}
	a := Adapter{mode: mode}
	switch mode {
	case Linux:
		a.native, err = onePosixRoot(c)
		a.docker = a.native
	case Windows:
		a.native, err = windowsRoot(c)
		a.docker = a.native
	case WSL:
		a.native, a.docker, err = wslRoots(c)
	case Container:
		a.native, a.docker, err = containerRoots(c)
		if a.docker.inVolume {
			a.volume = c.Volume
		}
	}
	if err != nil {
		return Adapter{}, err
	}
	return a, nil
}

// Mode is the mode in force, never Auto.
func (a Adapter) Mode() Mode { return a.mode }

// NativeRoot is the workspace root as this process reads and writes it.
func (a Adapter) NativeRoot() string { return a.native.path }

// DockerRoot is the workspace root as docker is given it; empty in a volume.
func (a Adapter) DockerRoot() string { return a.docker.path }

// Volume is the name of the volume that is the workspace root; empty: the root is a directory of
// docker's machine.
func (a Adapter) Volume() string { return a.volume }

// Native is host_path_native: a path below the root as this process reads and writes it. Each rel
// is one or more names joined by slashes; names that some system would not take as plain names are
// refused, so the result never leaves the root.
func (a Adapter) Native(rel ...string) (string, error) { return a.native.join(rel) }

// DockerMount is docker_mount_path: the same place in the form that docker takes as the source of a
// bind mount, or as the subpath of a mount of Volume.
func (a Adapter) DockerMount(rel ...string) (string, error) {
	// docker parses --mount as CSV, so a comma would start another option.
	for _, r := range rel {
		if strings.Contains(r, ",") {
			return "", fmt.Errorf("path %q holds a comma, which docker's --mount cannot take", r)
		}
	}
	return a.docker.join(rel)
}

func decideMode(c Config) (Mode, error) {
	mode := c.Mode
	if mode == "" || mode == Auto {
		switch {
		case c.GOOS == "windows":
			mode = Windows
		// Being in a container alone does not decide: the engine may run in the same container. The
		// host's root or a volume does.
		case c.InContainer && (c.RootHost != "" || c.Volume != ""):
			mode = Container
		case c.IsWSL && !c.InContainer:
			mode = WSL
		default:
			mode = Linux
		}
	}
	switch mode {
	case Linux:
		if c.GOOS == "windows" {
			return "", fault.New(fault.InvalidSettings, "%s is %q, but this is Windows: set it to %q or %q", settingMode, mode, Auto,
				Windows)
		}
		if c.DockerIsExe {
			return "", fault.New(fault.InvalidSettings,
				"%s is %q, but the docker CLI found is docker.exe, which takes Windows paths: set %s to %q, or install a Linux docker CLI",
				settingMode, mode, settingMode, WSL)
		}
	case Windows:
		if c.GOOS != "windows" {
			return "", fault.New(fault.InvalidSettings, "%s is %q, but this is %s: set it to %q", settingMode, mode, c.GOOS, Auto)
		}
	case WSL, Container:
		if c.GOOS != "linux" {
			return "", fault.New(fault.InvalidSettings, "%s is %q, which needs Linux, but this is %s: set it to %q", settingMode, mode,
				c.GOOS, Auto)
		}
	default:
		return "", fault.New(fault.InvalidSettings, "%s is %q: it must be auto, linux, windows, wsl or container", settingMode, mode)
	}
	return mode, nil
}

func onePosixRoot(c Config) (root, error) {
	if c.Root == "" {
		return root{}, missing(settingRoot, "/srv/secbox")
	}
	return posixRoot(settingRoot, c.Root)
}

func windowsRoot(c Config) (root, error) {
	switch {
	case c.RootWin != "":
		return winRoot(settingRootWin, c.RootWin)
	case c.RootWSL != "":
		return derived(c, settingRootWin, settingRootWSL, c.RootWSL, true)
	case c.Root != "":
		return winRoot(settingRoot, c.Root)
	}
	return root{}, missing(settingRootWin, `D:\secbox`)
}

func wslRoots(c Config) (native, docker root, err error) {
	switch {
	case c.RootWSL != "":
		native, err = posixRoot(settingRootWSL, c.RootWSL)
	case c.RootWin != "":
		if _, err = winRoot(settingRootWin, c.RootWin); err == nil {
			native, err = derived(c, settingRootWSL, settingRootWin, c.RootWin, false)
		}
	case c.Root != "":
		native, err = posixRoot(settingRoot, c.Root)
	default:
		err = missing(settingRootWSL, "/mnt/d/secbox")
	}
	if err != nil || !c.DockerIsExe {
		return native, native, err
	}

	// docker.exe understands Windows paths only, and it must be the very directory that this
	// process writes to.
	if c.RootWin == "" {
		docker, err = derived(c, settingRootWin, settingRootWSL, native.path, true)
		return native, docker, err
	}
	if docker, err = winRoot(settingRootWin, c.RootWin); err != nil {
		return native, docker, err
	}
	same, known := "", false
	if c.Wslpath != nil {
		if p, err := c.Wslpath(native.path, true); err == nil {
			if r, err := winRoot(settingRootWin, p); err == nil {
				same, known = r.path, true
			} else {
				same, known = p, true
			}
		}
	} else {
		same, known = automounted(native.path)
	}
	if known && !strings.EqualFold(same, docker.path) {
		return native, docker, fault.New(fault.InvalidSettings,
			"docker is docker.exe, so both roots must be one directory, but %s %q is %q on Windows and %s is %q: make them agree, or "+
				"leave %s out",
			settingRootWSL, native.path, same, settingRootWin, docker.path, settingRootWin)
	}
	return native, docker, nil
}

func containerRoots(c Config) (native, docker root, err error) {
	if native, err = onePosixRoot(c); err != nil {
		return native, docker, err
	}
	switch {
	case c.RootHost != "":
	case c.Volume == "":
		return native, docker, fault.New(fault.InvalidSettings,
			"%s is %q, but %s is not set: set it to the directory on the docker engine's host that is mounted at %s here, or %s to the "+
				"name of the volume",
			settingMode, Container, settingRootHost, native.path, settingVolume)
	case !volumeName.MatchString(c.Volume):
		return native, docker, fault.New(fault.InvalidSettings,
			"%s %q is no name of a docker volume: give the name that `docker volume ls` has", settingVolume, c.Volume)
	default:
		return native, root{inVolume: true}, nil
	}
	// On Docker Desktop for Windows the host's path may be D:\…; the engine behind it takes that as
	// it is.
	if hasDrive(c.RootHost) {
		docker, err = winRoot(settingRootHost, c.RootHost)
	} else {
		docker, err = posixRoot(settingRootHost, c.RootHost)
	}
	return native, docker, err
}

// volumeName matches the engine's names of volumes. The engine makes no name of one letter, which
// could be a drive.
var volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,254}$`)

// derived converts the root of one setting into the form of a missing one.
func derived(c Config, missingSetting, fromSetting, from string, toWindows bool) (root, error) {
	if c.Wslpath == nil {
		return root{}, fault.New(fault.InvalidSettings,
			"%s is not set, and there is no wslpath here to derive it from %s %q: set it", missingSetting, fromSetting, from)
	}
	p, err := c.Wslpath(from, toWindows)
	p = strings.TrimRight(p, "\r\n")
	if err != nil || p == "" {
		return root{}, fault.Wrap(fault.InvalidSettings, err,
			"%s is not set, and wslpath could not derive it from %s %q: set it", missingSetting, fromSetting, from)
	}
	var r root
	if toWindows {
		r, err = winRoot(missingSetting, p)
	} else {
		r, err = posixRoot(missingSetting, p)
	}
	if err != nil {
		return root{}, fault.Wrap(fault.InvalidSettings, err,
			"%s is not set, and what wslpath makes of %s %q cannot be used: %s", missingSetting, fromSetting, from, fault.From(err).Message)
	}
	return r, nil
}

func missing(setting, example string) error {
	return fault.New(fault.InvalidSettings, "%s is not set: set it to an absolute directory such as %s", setting, example)
}
