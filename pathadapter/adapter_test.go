package pathadapter_test

import (
	"errors"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/pathadapter"
)

// fakeWslpath maps drives as WSL does by default.
func fakeWslpath(path string, toWindows bool) (string, error) {
	if toWindows {
		if rest, ok := strings.CutPrefix(path, "/mnt/d/"); ok {
			return `D:\` + strings.ReplaceAll(rest, "/", `\`) + "\n", nil
		}
		return `\\wsl.localhost\Debian` + strings.ReplaceAll(path, "/", `\`), nil
	}
	if rest, ok := strings.CutPrefix(path, `D:\`); ok {
		return "/mnt/d/" + strings.ReplaceAll(rest, `\`, "/") + "\n", nil
	}
	return "", errors.New("wslpath: no such drive")
}

func brokenWslpath(string, bool) (string, error) { return "", errors.New("exit status 1") }

func TestBothFormsOfARoot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config         pathadapter.Config
		mode           pathadapter.Mode
		native, docker string // of projects/demo/work
	}{
		"linux": {
			pathadapter.Config{Mode: "linux", GOOS: "linux", Root: "/srv/ws"},
			pathadapter.Linux, "/srv/ws/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"auto on linux": {
			pathadapter.Config{Mode: "auto", GOOS: "linux", Root: "/srv/ws"},
			pathadapter.Linux, "/srv/ws/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"macOS": {
			pathadapter.Config{GOOS: "darwin", Root: "/Users/a b/ws"},
			pathadapter.Linux, "/Users/a b/ws/projects/demo/work", "/Users/a b/ws/projects/demo/work",
		},
		"doubled and trailing slashes": {
			pathadapter.Config{GOOS: "linux", Root: "//srv///ws/"},
			pathadapter.Linux, "/srv/ws/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"windows": {
			pathadapter.Config{Mode: "windows", GOOS: "windows", RootWin: `D:\ws`, RootWSL: "/mnt/d/ws"},
			pathadapter.Windows, `D:\ws\projects\demo\work`, `D:\ws\projects\demo\work`,
		},
		"auto on windows": {
			pathadapter.Config{GOOS: "windows", RootWin: `D:\ws`},
			pathadapter.Windows, `D:\ws\projects\demo\work`, `D:\ws\projects\demo\work`,
		},
		"windows, lower drive, slashes, trailing separator": {
			pathadapter.Config{GOOS: "windows", RootWin: `d:/my ws/`},
			pathadapter.Windows, `D:\my ws\projects\demo\work`, `D:\my ws\projects\demo\work`,
		},
		"windows, only the general root": {
			pathadapter.Config{GOOS: "windows", Root: `C:\ws`},
			pathadapter.Windows, `C:\ws\projects\demo\work`, `C:\ws\projects\demo\work`,
		},
		"windows derived from wsl": {
			pathadapter.Config{GOOS: "windows", RootWSL: "/mnt/d/ws", Wslpath: fakeWslpath},
			pathadapter.Windows, `D:\ws\projects\demo\work`, `D:\ws\projects\demo\work`,
		},
		"wsl with its own docker": {
			pathadapter.Config{Mode: "wsl", GOOS: "linux", RootWSL: "/mnt/d/ws", RootWin: `D:\ws`},
			pathadapter.WSL, "/mnt/d/ws/projects/demo/work", "/mnt/d/ws/projects/demo/work",
		},
		"auto on wsl": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/home/u/ws"},
			pathadapter.WSL, "/home/u/ws/projects/demo/work", "/home/u/ws/projects/demo/work",
		},
		"wsl, only the general root": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, Root: "/home/u/ws"},
			pathadapter.WSL, "/home/u/ws/projects/demo/work", "/home/u/ws/projects/demo/work",
		},
		"wsl derived from windows": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWin: `D:\ws`, Wslpath: fakeWslpath},
			pathadapter.WSL, "/mnt/d/ws/projects/demo/work", "/mnt/d/ws/projects/demo/work",
		},
		"wsl with docker.exe, both roots": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/mnt/d/ws", RootWin: `d:\ws`, DockerIsExe: true},
			pathadapter.WSL, "/mnt/d/ws/projects/demo/work", `D:\ws\projects\demo\work`,
		},
		"wsl with docker.exe, derived": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/mnt/d/ws", DockerIsExe: true, Wslpath: fakeWslpath},
			pathadapter.WSL, "/mnt/d/ws/projects/demo/work", `D:\ws\projects\demo\work`,
		},
		"container": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/workspace-root", RootHost: "/srv/ws"},
			pathadapter.Container, "/workspace-root/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"container on Docker Desktop for Windows": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", RootHost: `c:\Users\u/ws`},
			pathadapter.Container, "/data/projects/demo/work", `C:\Users\u\ws\projects\demo\work`,
		},
		"auto in a container with a host root": {
			pathadapter.Config{GOOS: "linux", InContainer: true, IsWSL: true, Root: "/data", RootHost: "/srv/ws"},
			pathadapter.Container, "/data/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"container with a volume": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", Volume: "secbox_workspace"},
			pathadapter.Container, "/data/projects/demo/work", "projects/demo/work",
		},
		"auto in a container with a volume": {
			pathadapter.Config{GOOS: "linux", InContainer: true, Root: "/data", Volume: "ws"},
			pathadapter.Container, "/data/projects/demo/work", "projects/demo/work",
		},
		"container with a host root, which replaces the volume": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", RootHost: "/srv/ws", Volume: "ws"},
			pathadapter.Container, "/data/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"a volume outside a container": {
			pathadapter.Config{GOOS: "linux", Root: "/srv/ws", Volume: "ws"},
			pathadapter.Linux, "/srv/ws/projects/demo/work", "/srv/ws/projects/demo/work",
		},
		"auto in a container that holds its own engine": {
			pathadapter.Config{GOOS: "linux", InContainer: true, IsWSL: true, Root: "/data"},
			pathadapter.Linux, "/data/projects/demo/work", "/data/projects/demo/work",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := pathadapter.New(c.config)
			if err != nil {
				t.Fatal(err)
			}
			native, err := a.Native("projects/demo", "work")
			if err != nil {
				t.Fatal(err)
			}
			docker, err := a.DockerMount("projects", "demo", "work")
			if err != nil {
				t.Fatal(err)
			}
			if a.Mode() != c.mode || native != c.native || docker != c.docker {
				t.Errorf("got %s %q %q, want %s %q %q", a.Mode(), native, docker, c.mode, c.native, c.docker)
			}
			if !strings.HasPrefix(native, a.NativeRoot()) || !strings.HasPrefix(docker, a.DockerRoot()) {
				t.Errorf("%q and %q are not below %q and %q", native, docker, a.NativeRoot(), a.DockerRoot())
			}
			if inVolume := a.Volume() != ""; inVolume != (docker == "projects/demo/work") || inVolume && a.Volume() != c.config.Volume {
				t.Errorf("the volume is %q", a.Volume())
			}
		})
	}
}

// TestRootsThatAreRefused: each refusal names the setting to change and says why.
func TestRootsThatAreRefused(t *testing.T) {
	t.Parallel()
	linux := func(root string) pathadapter.Config { return pathadapter.Config{GOOS: "linux", Root: root} }
	win := func(root string) pathadapter.Config { return pathadapter.Config{GOOS: "windows", RootWin: root} }
	wsl := func(root string) pathadapter.Config {
		return pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: root}
	}
	for name, c := range map[string]struct {
		config pathadapter.Config
		words  []string
	}{
		"linux: missing":            {linux(""), []string{"sandbox.workspace_root is not set"}},
		"linux: relative":           {linux("ws"), []string{"sandbox.workspace_root ", "relative"}},
		"linux: dot relative":       {linux("./ws"), []string{"relative"}},
		"linux: ~":                  {linux("~/ws"), []string{"~"}},
		"linux: comma":              {linux("/srv/a,b"), []string{"sandbox.workspace_root ", "','"}},
		"linux: colon":              {linux("/srv/a:b"), []string{`":"`}},
		"linux: quote":              {linux(`/srv/a"b`), []string{`'"'`}},
		"linux: newline":            {linux("/srv/a\nb"), []string{"control character"}},
		"linux: NUL":                {linux("/srv/a\x00b"), []string{"control character"}},
		"linux: not UTF-8":          {linux("/srv/\xff"), []string{"UTF-8"}},
		"linux: backslash":          {linux(`/srv/a\b`), []string{`"\"`}},
		"linux: the whole disk":     {linux("/"), []string{"whole disk"}},
		"linux: ..":                 {linux("/srv/../etc"), []string{`".."`}},
		"linux: a Windows path":     {linux(`D:\ws`), []string{"Windows path"}},
		"linux: a share":            {linux(`\\server\share`), []string{"share"}},
		"windows: missing":          {win(""), []string{"sandbox.workspace_root_win is not set"}},
		"windows: a WSL path":       {win("/mnt/d/ws"), []string{"sandbox.workspace_root_win", "WSL path"}},
		"windows: a posix path":     {win("/srv/ws"), []string{"no drive"}},
		"windows: UNC":              {win(`\\server\share\ws`), []string{"network"}},
		"windows: UNC with slashes": {win(`//server/share/ws`), []string{"network"}},
		"windows: wsl$":             {win(`\\wsl$\Debian\home`), []string{"WSL share"}},
		"windows: \\\\?\\":          {win(`\\?\D:\ws`), []string{"device path"}},
		"windows: \\\\.\\":          {win(`\\.\D:\ws`), []string{"device path"}},
		"windows: relative":         {win(`ws`), []string{"no drive"}},
		"windows: rooted":           {win(`\ws`), []string{"no drive"}},
		"windows: drive relative":   {win(`D:ws`), []string{"current directory"}},
		"windows: a drive":          {win(`D:`), []string{"current directory"}},
		"windows: the whole disk":   {win(`D:\`), []string{"whole disk"}},
		"windows: ..":               {win(`D:\ws\..\x`), []string{`".."`}},
		"windows: ~":                {win(`~\ws`), []string{"~"}},
		"windows: comma":            {win(`D:\a,b`), []string{"','"}},
		"windows: second colon":     {win(`D:\a:b`), []string{"Windows does not allow"}},
		"windows: device":           {win(`D:\ws\con.d`), []string{"device name"}},
		"windows: trailing dot":     {win(`D:\ws.\x`), []string{"dot or a space"}},
		"wsl: missing":              {wsl(""), []string{"sandbox.workspace_root_wsl is not set"}},
		"wsl: a Windows path":       {wsl(`D:\ws`), []string{"sandbox.workspace_root_wsl", "/mnt/d"}},
		"wsl: relative":             {wsl("ws"), []string{"relative"}},
		"wsl: not derivable": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWin: `D:\ws`},
			[]string{"sandbox.workspace_root_wsl is not set", "no wslpath"},
		},
		"wsl: wslpath fails": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWin: `D:\ws`, Wslpath: brokenWslpath},
			[]string{"sandbox.workspace_root_wsl is not set", "could not derive"},
		},
		"windows: not derivable": {
			pathadapter.Config{GOOS: "windows", RootWSL: "/mnt/d/ws"},
			[]string{"sandbox.workspace_root_win is not set", "no wslpath"},
		},
		"wsl, docker.exe: not derivable": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/mnt/d/ws", DockerIsExe: true},
			[]string{"sandbox.workspace_root_win is not set"},
		},
		"wsl, docker.exe: on the Linux disk": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/home/u/ws", DockerIsExe: true, Wslpath: fakeWslpath},
			[]string{"sandbox.workspace_root_win is not set", "WSL share"},
		},
		"wsl, docker.exe: two directories, by wslpath": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/home/u/ws", RootWin: `D:\ws`, DockerIsExe: true, Wslpath: fakeWslpath},
			[]string{"one directory"},
		},
		"wsl, docker.exe: two directories, by /mnt": {
			pathadapter.Config{GOOS: "linux", IsWSL: true, RootWSL: "/mnt/d/other", RootWin: `D:\ws`, DockerIsExe: true},
			[]string{"one directory"},
		},
		"container: no host root": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data"},
			[]string{"sandbox.workspace_root_host is not set"},
		},
		"container: no inner root": {
			pathadapter.Config{Mode: "container", GOOS: "linux", RootHost: "/data"},
			[]string{"sandbox.workspace_root is not set"},
		},
		"container: relative host root": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", RootHost: "ws"},
			[]string{"sandbox.workspace_root_host", "relative"},
		},
		"container: comma in the host root": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", RootHost: "/a,b"},
			[]string{"sandbox.workspace_root_host", "','"},
		},
		"container: neither a host root nor a volume": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data"}, []string{"sandbox.workspace_volume"},
		},
		"container: a volume without an inner root": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Volume: "ws"}, []string{"sandbox.workspace_root is not set"},
		},
		"container: a second option in the volume": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", Volume: "ws,readonly"},
			[]string{"sandbox.workspace_volume", "docker volume ls"},
		},
		"container: a path as the volume": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", Volume: "/srv/ws"}, []string{"sandbox.workspace_volume"},
		},
		"container: a drive as the volume": {
			pathadapter.Config{Mode: "container", GOOS: "linux", Root: "/data", Volume: "D"}, []string{"sandbox.workspace_volume"},
		},
		"unknown mode":     {pathadapter.Config{Mode: "vms", GOOS: "linux", Root: "/data"}, []string{"runtime_mode", "vms"}},
		"windows on linux": {pathadapter.Config{Mode: "windows", GOOS: "linux", RootWin: `D:\ws`}, []string{"runtime_mode"}},
		"wsl on darwin":    {pathadapter.Config{Mode: "wsl", GOOS: "darwin", RootWSL: "/ws"}, []string{"runtime_mode"}},
		"linux on windows": {pathadapter.Config{Mode: "linux", GOOS: "windows", Root: "/ws"}, []string{"runtime_mode"}},
		"linux with docker.exe": {
			pathadapter.Config{Mode: "linux", GOOS: "linux", Root: "/ws", DockerIsExe: true},
			[]string{"runtime_mode", "docker.exe"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := pathadapter.New(c.config)
			if err == nil {
				t.Fatalf("accepted as %q and %q", a.NativeRoot(), a.DockerRoot())
			}
			if !fault.Is(err, fault.InvalidSettings) {
				t.Errorf("code %s", fault.CodeOf(err))
			}
			for _, word := range c.words {
				if !strings.Contains(fault.From(err).Message, word) {
					t.Errorf("message %q does not say %q", fault.From(err).Message, word)
				}
			}
		})
	}
}

func TestNoFormLeavesTheRoot(t *testing.T) {
	t.Parallel()
	for _, rel := range []string{
		"..", "../x", "a/..", "a/../../x", "/abs", "a//b", "", ".", `..\x`, `a\b`, "C:x", `C:\x`, "a:b", "a\x00b", "a\nb", "CON", "a/nul.txt",
		"com¹", ".. ", "...", "a ", "a.", "x,readonly", `x"y`, "a/", "\xff",
	} {
		for _, a := range adapters(t) {
			if p, err := a.Native(rel); err == nil && rel != "x,readonly" {
				t.Errorf("%s: Native(%q) = %q", a.Mode(), rel, p)
			}
			if p, err := a.DockerMount(rel); err == nil {
				t.Errorf("%s: DockerMount(%q) = %q", a.Mode(), rel, p)
			}
		}
	}
	for _, a := range adapters(t) {
		if p, err := a.DockerMount(); err == nil && a.Volume() != "" {
			t.Errorf("docker would mount the whole volume, by %q", p)
		}
	}
	var zero pathadapter.Adapter
	if p, err := zero.Native("x"); err == nil {
		t.Errorf("the zero adapter answers %q", p)
	}
	if p, err := zero.DockerMount(); err == nil {
		t.Errorf("the zero adapter answers %q", p)
	}
}

func adapters(t testing.TB) []pathadapter.Adapter {
	var list []pathadapter.Adapter
	for _, c := range []pathadapter.Config{
		{GOOS: "linux", Root: "/srv/ws"},
		{GOOS: "windows", RootWin: `D:\ws`},
		{GOOS: "linux", IsWSL: true, RootWSL: "/mnt/d/ws", RootWin: `D:\ws`, DockerIsExe: true},
		{Mode: "container", GOOS: "linux", Root: "/data", RootHost: "/srv/ws"},
		{Mode: "container", GOOS: "linux", Root: "/data", Volume: "ws"},
	} {
		a, err := pathadapter.New(c)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"CON", "con", "Prn", "AUX", "nul", "NUL.txt", "con.tar.gz", "nul .log", "COM1", "com9.x", "LPT0", "lpt¹", "COM²", "conin$",
		"CONOUT$", "clock$",
	} {
		if !pathadapter.ReservedName(name) {
			t.Errorf("%q is not reserved", name)
		}
	}
	for _, name := range []string{"console", "com", "com10", "lpt", "nul_", "a.con", "aux-1", "", "."} {
		if pathadapter.ReservedName(name) {
			t.Errorf("%q is reserved", name)
		}
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	const (
		debian = "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)"
		wsl2   = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)"
		wsl1   = "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)"
	)
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for name, c := range map[string]struct {
		facts          pathadapter.Facts
		wsl, container bool
	}{
		"debian":               {pathadapter.Facts{GOOS: "linux", ProcVersion: debian}, false, false},
		"wsl2":                 {pathadapter.Facts{GOOS: "linux", ProcVersion: wsl2, Getenv: env()}, true, false},
		"wsl1":                 {pathadapter.Facts{GOOS: "linux", ProcVersion: wsl1}, true, false},
		"wsl by environment":   {pathadapter.Facts{GOOS: "linux", ProcVersion: debian, Getenv: env("WSL_DISTRO_NAME", "Debian")}, true, false},
		"container by file":    {pathadapter.Facts{GOOS: "linux", ProcVersion: debian, DockerEnv: true}, false, true},
		"container by env":     {pathadapter.Facts{GOOS: "linux", Getenv: env("container", "podman")}, false, true},
		"container on Desktop": {pathadapter.Facts{GOOS: "linux", ProcVersion: wsl2, DockerEnv: true}, true, true},
		"windows":              {pathadapter.Facts{GOOS: "windows", Getenv: env("WSL_INTEROP", "x")}, false, false},
		"macOS":                {pathadapter.Facts{GOOS: "darwin"}, false, false},
	} {
		wsl, container := pathadapter.Detect(c.facts)
		if wsl != c.wsl || container != c.container {
			t.Errorf("%s: wsl %v, container %v", name, wsl, container)
		}
	}
}

// FuzzRelativePath: every accepted path is below the root in both forms, as each system reads it.
func FuzzRelativePath(f *testing.F) {
	for _, s := range []string{
		"projects/demo/work", "../x", `..\x`, "a/../../x", "C:x", "a:b", "CON", "a/nul.txt", ".. /x", "x,ro", "~", "a\x00", "é/ü", "a./b", "/", `\\s\h`,
	} {
		f.Add(s, "x")
	}
	list := adapters(f)
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, a := range list {
			if p, err := a.Native(one, two); err == nil {
				below(t, a.NativeRoot(), p)
			}
			if p, err := a.DockerMount(one, two); err == nil {
				if a.Volume() != "" {
					p = "/" + p
				}
				below(t, a.DockerRoot(), p)
				if strings.Contains(p, ",") {
					t.Errorf("%q would be two of docker's mount options", p)
				}
			}
		}
	})
}

// below checks p as both systems would read it: by its components, after what Windows drops from
// their ends.
func below(t *testing.T, root, p string) {
	t.Helper()
	rest, ok := strings.CutPrefix(p, root)
	if !ok || rest == "" {
		t.Fatalf("%q is not below %q", p, root)
	}
	if strings.ContainsAny(rest, ":\x00") {
		t.Fatalf("%q holds a drive, a stream or a NUL", p)
	}
	parts := strings.FieldsFunc(rest, func(r rune) bool { return r == '/' || r == '\\' })
	for _, part := range parts {
		if strings.TrimRight(part, ". ") != part || part == "" || pathadapter.ReservedName(part) {
			t.Fatalf("%q has the component %q", p, part)
		}
	}
	separators := strings.Count(rest, "/") + strings.Count(rest, `\`)
	if separators != len(parts) {
		t.Fatalf("%q has empty components", p)
	}
}

// FuzzRoot: New never makes an adapter whose docker root could be read as anything but one absolute
// directory.
func FuzzRoot(f *testing.F) {
	for _, s := range []string{"/srv/ws", `D:\ws`, "/", "~", `\\wsl$\x`, "d:/x/", "/a,b", "/a:b", "C:x", "//x", "/x/../y", `D:\CON`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range []pathadapter.Config{
			{GOOS: "linux", Root: s},
			{GOOS: "windows", RootWin: s},
			{GOOS: "linux", IsWSL: true, RootWSL: s},
			{Mode: "container", GOOS: "linux", Root: "/data", RootHost: s},
			{Mode: "container", GOOS: "linux", Root: "/data", Volume: s},
		} {
			a, err := pathadapter.New(c)
			if err != nil {
				if !fault.Is(err, fault.InvalidSettings) {
					t.Fatalf("%q: %v", s, err)
				}
				continue
			}
			docker := a.DockerRoot()
			if a.Volume() != "" {
				if docker != "" || strings.ContainsAny(s, ",=:/\\\"\n\x00 ") {
					t.Fatalf("the volume %q gives %q", s, docker)
				}
				continue
			}
			if strings.ContainsAny(docker, ",\"\n\x00") || strings.Contains(docker, "..") && strings.Contains("/"+docker+"/", "/../") {
				t.Fatalf("%q gives %q", s, docker)
			}
			rest := docker
			if len(docker) > 2 && docker[1] == ':' {
				rest = docker[2:]
			}
			if strings.Contains(rest, ":") || rest == "/" || rest == `\` || rest[0] != '/' && rest[0] != '\\' {
				t.Fatalf("%q gives %q", s, docker)
			}
			if a.Mode() == pathadapter.Windows && docker[1] != ':' || a.Mode() == pathadapter.WSL && docker[0] != '/' {
				t.Fatalf("%s gives docker %q", a.Mode(), docker)
			}
		}
	})
}
