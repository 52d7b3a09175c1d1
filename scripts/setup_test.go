// Package scripts has no code: its tests run setup.sh on simulated machines.
//
// A machine is a folder of programs that is the whole PATH: the real ones that a script needs, and
// stubs for those that would change the machine. Every stub logs its arguments.
package scripts

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is where one run of setup.sh happens.
type machine struct {
	t    *testing.T
	dir  string // the copy of the repository's scripts, and the machine's state as files
	bin  string
	env  []string
	goal string
}

// bare is a Debian machine with root and Go, a registry, and nothing else: no engine, no
// PostgreSQL, package lists that are empty.
func bare(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), goal: "test"}
	m.bin = filepath.Join(m.dir, "bin-of-the-machine")
	for _, d := range []string{
		m.bin, "scripts", "images", "bin", "sbin", "postgresql/15/bin", "postgresql-common", "e2e/testdata/mcpclient",
		"console/testdata/browser", "scripts/interop", "clients/typescript",
	} {
		if !filepath.IsAbs(d) {
			d = filepath.Join(m.dir, d)
		}
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{
		"../scripts/*.sh", "../images/*.sh", "../images/*.Dockerfile", "../go.mod", "../e2e/testdata/mcpclient/*.json",
		"../console/testdata/browser/*.json", "../scripts/interop/*.json", "../clients/typescript/package*.json",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, from := range files {
			m.copy(from, filepath.Join(m.dir, strings.TrimPrefix(from, "../")))
		}
	}
	for _, name := range strings.Fields(`bash sh env cat chmod cp cut date dirname basename grep head id install ls mkdir mktemp mv nohup paste
		rm sed setsid sha256sum sleep sort tail timeout touch tr uname`) {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("the tests need %s: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.write("os-release", "ID=debian\n")
	m.write("postgresql-common/createcluster.conf", "# as Debian ships it\n")

	m.stub("id", `[ "$1" = -u ] && echo 0 || echo root`)
	for _, name := range []string{"curl", "jq", "git", "ip", "zip", "unzip", "python3"} {
		m.stub(name, ``)
	}
	m.stub("go", `case "$*" in
		"env GOVERSION") echo go1.26.8 ;;
		*" -o "*) while [ "$1" != -o ]; do shift; done; echo program > "$2" ;;
	esac`)
	// Packages become known when the lists are fetched, and put their programs where Debian would.
	m.stub("apt-cache",
		`[ -e "$M/lists" ] && [ "$2" != docker-cli ] && [ "$2" != docker-compose ] && [ "$2" != docker-compose-v2 ] && echo "  Candidate: 1.0"; exit 0`)
	m.stub("apt-get", `case "$*" in
		*update*) touch "$M/lists" ;;
		*"install "*" crun") cp "$M/crun" "$BIN/" ;;
		*"install "*" chromium") touch "$BIN/chromium"; chmod +x "$BIN/chromium" ;;
		*"install "*" nodejs npm") cp "$M/node" "$M/npm" "$BIN/" ;;
		*install*docker.io*) cp "$M/docker" "$M/dockerd" "$BIN/" ;;
		*"install "*" pgbouncer") cp "$M/sbin/policy-rc.d" "$M/policy-at-install"; touch "$M/sbin/pgbouncer"; chmod +x "$M/sbin/pgbouncer" ;;
		*"install "*"postgresql") cp "$M/postgresql-common/createcluster.conf" "$M/conf-at-install"; touch "$M/postgresql/15/bin/initdb"; chmod +x "$M/postgresql/15/bin/initdb" ;;
	esac`)
	m.write("docker", `#!/bin/sh
		echo "docker $*" >> "$M/log"
		case "$1" in
			info) [ -e "$M/engine-is-up" ] && exit 0; cat "$M/engine-says" >&2 2>/dev/null; exit 1 ;;
			version) case "$*" in *Arch*) echo amd64 ;; *) echo 28.0.0 ;; esac ;;
			pull) echo "$3" >> "$M/images-of-the-engine" ;;
			build) while [ "$1" != -t ]; do shift; done; echo "$2" >> "$M/images-of-the-engine" ;;
			image) for image; do :; done; grep -qxF "$image" "$M/images-of-the-engine" 2>/dev/null || exit 1; echo sha256:0123456789abcdef ;;
			compose) [ "$2" = version ] && echo 2.40.3 ;;
		esac`)
	m.write("dockerd", `#!/bin/sh
		echo "dockerd $*" >> "$M/log"; touch "$M/engine-is-up"`)
	m.write("crun", "#!/bin/sh\necho 'crun version 1.8.1'\n")
	m.write("node", "#!/bin/sh\n[ \"$1\" != --version ] || echo v20.20.2\n")
	m.write("npm", "#!/bin/sh\necho \"npm $*\" >> \"$M/log\"\n")
	m.env = []string{
		"M=" + m.dir, "BIN=" + m.bin, "PATH=" + m.bin, "HOME=" + m.dir, "TMPDIR=" + m.dir,
		"SECBOX_OS_RELEASE=" + filepath.Join(m.dir, "os-release"),
		"SECBOX_DOCKERD_LOG=" + filepath.Join(m.dir, "dockerd.log"),
		"SECBOX_SYSTEMD_DIR=" + filepath.Join(m.dir, "systemd"),
		"SECBOX_DAEMON_JSON=" + filepath.Join(m.dir, "daemon.json"),
		"SECBOX_SBIN=" + filepath.Join(m.dir, "sbin"),
		"SECBOX_POSTGRES_DIR=" + filepath.Join(m.dir, "postgresql"),
		"SECBOX_CREATECLUSTER_CONF=" + filepath.Join(m.dir, "postgresql-common/createcluster.conf"),
	}
	return m
}

// complete is a machine on which nothing is missing.
func complete(t *testing.T) *machine {
	t.Helper()
	m := bare(t)
	m.write("engine-is-up", "")
	m.program("docker")
	m.program("crun")
	m.stub("chromium", ``)
	m.program("node")
	m.program("npm")
	m.stub("initdb", ``)
	m.stub("postgres", ``)
	m.stub("pgbouncer", ``)
	return m
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return string(content)
}

func (m *machine) copy(from, to string) {
	m.t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// stub puts a program on the machine that logs how it was called and runs a shell script.
func (m *machine) stub(name, script string) {
	m.t.Helper()
	path := filepath.Join(m.bin, name)
	_ = os.Remove(path)
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \""+name+" $*\" >> \"$M/log\"\n"+script+"\n"), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// program installs one of the machine's own files.
func (m *machine) program(name string) {
	m.copy(filepath.Join(m.dir, name), filepath.Join(m.bin, name))
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.bin, name)); err != nil {
		m.t.Fatal(err)
	}
}

// setup runs the script; it returns its output and whether it succeeded.
func (m *machine) setup() (said string, ok bool) {
	m.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(m.t.Context()), filepath.Join(m.bin, "bash"), filepath.Join(m.dir, "scripts/setup.sh"), m.goal)
	cmd.Env = m.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if left, _ := filepath.Glob(filepath.Join(m.dir, "secbox*")); len(left) > 0 {
		m.t.Errorf("temporary files are left: %v", left)
	}
	return out.String(), err == nil
}

// asked lists the arguments of the calls of a stub, in order.
func (m *machine) asked(name string) []string {
	var calls []string
	for line := range strings.Lines(m.read("log")) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name+" "); ok {
			calls = append(calls, rest)
		}
	}
	return calls
}

func (m *machine) installed() []string {
	var packages []string
	for _, call := range m.asked("apt-get") {
		if _, names, ok := strings.Cut(call, "install -y --no-install-recommends "); ok {
			packages = append(packages, strings.Fields(names)...)
		}
	}
	return packages
}

func TestCompleteMachine(t *testing.T) {
	t.Parallel()
	m := complete(t)
	said, ok := m.setup()
	if !ok || !strings.HasSuffix(said, "secbox: ready\n") {
		t.Errorf("ok %v, it said:\n%s", ok, said)
	}
	if calls := m.asked("apt-get"); len(calls) != 0 {
		t.Errorf("apt-get was called: %q", calls)
	}
}

func TestBareDebian(t *testing.T) {
	t.Parallel()
	m := bare(t)
	m.remove("jq")
	m.remove("ip")
	m.remove("zip")
	said, ok := m.setup()
	// The apt-get of this test only records its arguments, so jq, ip and zip are still missing;
	// set-up does not look for them again.
	if !ok {
		t.Errorf("it said:\n%s", said)
	}
	got := m.installed()
	slices.Sort(got)
	if want := []string{
		"chromium", "crun", "docker.io", "iproute2", "iptables", "jq", "nodejs", "npm", "pgbouncer", "postgresql", "postgresql-common",
		"zip",
	}; !slices.Equal(got, want) {
		t.Errorf("installed %q, want %q", got, want)
	}
	if want := []string{"--add-runtime crun=" + filepath.Join(m.bin, "crun")}; !slices.Equal(m.asked("dockerd"), want) {
		t.Errorf("dockerd was started with %q, want %q; it said:\n%s", m.asked("dockerd"), want, said)
	}
	if !strings.Contains(said, "secbox: crun: 1.8.1\n") || !strings.Contains(said, "with the runtime crun") {
		t.Errorf("it said:\n%s", said)
	}
	updates := 0
	for _, call := range m.asked("apt-get") {
		if strings.HasSuffix(call, "update") {
			updates++
		}
	}
	if updates != 1 {
		t.Errorf("the package lists were fetched %d times", updates)
	}
}

// The packages of a lock file are installed once; another lock file is installed again.
func TestMCPClients(t *testing.T) {
	t.Parallel()
	m := complete(t)
	for range 2 {
		if said, ok := m.setup(); !ok || !strings.Contains(said,
			"secbox: Node.js: v20.20.2, the MCP clients of the tests, the checkers of pages, the programs of make interop and the packages") {
			t.Fatalf("ok %v, it said:\n%s", ok, said)
		}
	}
	calls := m.asked("npm")
	if len(calls) != 4 || !strings.HasPrefix(calls[0], "ci ") || slices.ContainsFunc(calls, func(one string) bool { return one != calls[0] }) {
		t.Errorf("npm was called with %q", calls)
	}
	const lock = "e2e/testdata/mcpclient/package-lock.json"
	m.write(lock, m.read(lock)+"\n ")
	if said, ok := m.setup(); !ok || len(m.asked("npm")) != 5 {
		t.Errorf("ok %v, npm was called with %q, it said:\n%s", ok, m.asked("npm"), said)
	}
	if got := m.read(".cache/mcpclient/installed.json"); got != m.read(lock) {
		t.Error("another lock file is installed")
	}
}

func TestNoDatabaseCluster(t *testing.T) {
	t.Parallel()
	m := bare(t)
	if said, ok := m.setup(); !ok {
		t.Fatalf("it said:\n%s", said)
	}
	if got := m.read("conf-at-install"); !strings.Contains(got, "create_main_cluster = false") {
		t.Errorf("while the package was installed the setting was:\n%s", got)
	}
	if got := m.read("postgresql-common/createcluster.conf"); got != "# as Debian ships it\n" {
		t.Errorf("afterwards it is:\n%s", got)
	}
}

// The package of PgBouncer starts no service, and the machine's own policy is kept.
func TestNoPoolerService(t *testing.T) {
	t.Parallel()
	const own = "#!/bin/sh\nexit 0\n"
	m := bare(t)
	m.write("sbin/policy-rc.d", own)
	m.stub("update-rc.d", ``)
	if said, ok := m.setup(); !ok {
		t.Fatalf("it said:\n%s", said)
	}
	if got := m.read("policy-at-install"); got != "#!/bin/sh\nexit 101\n" {
		t.Errorf("while the package was installed the policy was:\n%s", got)
	}
	if got := m.read("sbin/policy-rc.d"); got != own {
		t.Errorf("afterwards it is:\n%s", got)
	}
	if got := m.asked("update-rc.d"); !slices.Equal(got, []string{"pgbouncer disable"}) {
		t.Errorf("update-rc.d was called with %q", got)
	}
}

// dockerd refuses runtimes in both daemon.json and a flag, and set-up does not change daemon.json.
func TestDaemonJSONIsKept(t *testing.T) {
	t.Parallel()
	const own = `{"runtimes": {"runsc": {"path": "/usr/local/bin/runsc"}}}`
	m := bare(t)
	m.write("daemon.json", own)
	if said, ok := m.setup(); !ok || !slices.Equal(m.asked("dockerd"), []string{""}) {
		t.Errorf("ok %v, dockerd was started with %q, it said:\n%s", ok, m.asked("dockerd"), said)
	}
	if got := m.read("daemon.json"); got != own {
		t.Errorf("daemon.json is now %s", got)
	}
}

func TestDemoGoal(t *testing.T) {
	t.Parallel()
	m := bare(t)
	m.goal = "demo"
	said, ok := m.setup()
	if !ok || slices.ContainsFunc(m.installed(), func(p string) bool {
		return p == "postgresql" || p == "pgbouncer" || p == "crun" || p == "nodejs" || p == "chromium"
	}) {
		t.Errorf("ok %v, installed %q, it said:\n%s", ok, m.installed(), said)
	}
	if want := []string{""}; !slices.Equal(m.asked("dockerd"), want) {
		t.Errorf("dockerd was started with %q", m.asked("dockerd"))
	}
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	m := bare(t)
	m.program("docker")
	m.program("dockerd")
	m.stub("systemctl", `touch "$M/engine-is-up"`)
	if err := os.Mkdir(filepath.Join(m.dir, "systemd"), 0o755); err != nil {
		t.Fatal(err)
	}
	said, ok := m.setup()
	if !ok || len(m.asked("dockerd")) != 0 || !slices.Contains(m.asked("systemctl"), "start docker") {
		t.Errorf("ok %v, systemctl %q, dockerd %q, it said:\n%s", ok, m.asked("systemctl"), m.asked("dockerd"), said)
	}
}

// TestProblems: each machine lacks one thing that setup must not or cannot fix.
func TestProblems(t *testing.T) {
	t.Parallel()
	notRoot := func(m *machine) { m.stub("id", `[ "$1" = -u ] && echo 1000 || echo ann`) }
	notDebian := func(m *machine) { m.write("os-release", "ID=arch\n") }
	engineDown := func(m *machine, words string) {
		_ = os.Remove(filepath.Join(m.dir, "engine-is-up"))
		m.write("engine-says", words)
	}
	for name, c := range map[string]struct {
		lacks func(*machine)
		says  string
	}{
		"no engine, not root": {
			func(m *machine) { notRoot(m); m.remove("docker") },
			"no Docker engine answers; start it (sudo systemctl start docker), or start Docker Desktop, or install one: sudo scripts/setup.sh",
		},
		"no engine, not Debian": {
			func(m *machine) { notDebian(m); m.remove("docker") },
			"no Docker engine answers; install and start one (https://docs.docker.com/engine/install) and run this again",
		},
		"an engine that this user may not use": {
			func(m *machine) {
				notRoot(m)
				engineDown(m, "ERROR: permission denied while trying to connect to the Docker daemon socket\n")
			},
			"this user may not use the Docker engine; run: sudo usermod -aG docker ann, then log in again",
		},
		"a client too old for the engine": {
			func(m *machine) {
				engineDown(m, "Error response from daemon: client version 1.41 is too old. Minimum supported API version is 1.44\n")
			},
			"docker and the engine do not understand each other (Error response from daemon: client version 1.41 is too old. Minimum supported API version " +
				"is 1.44); update the older of the two",
		},
		"an engine elsewhere that is silent": {
			func(m *machine) {
				engineDown(m, "")
				m.env = append(m.env, "DOCKER_HOST=tcp://10.0.0.9:2375")
			},
			"the engine that DOCKER_HOST names does not answer; unset it or start that engine",
		},
		"an engine that dies at its start": {
			func(m *machine) {
				engineDown(m, "Cannot connect to the Docker daemon\n")
				m.write("dockerd", "#!/bin/sh\necho 'failed to start daemon: Devices cgroup is not mounted'; exit 1\n")
				m.program("dockerd")
			},
			"dockerd does not come up: failed to start daemon: Devices cgroup is not mounted",
		},
		"an engine that cannot be installed": {
			func(m *machine) { m.remove("docker"); m.stub("apt-get", `exit 100`) },
			"docker.io could not be installed; install a Docker engine (https://docs.docker.com/engine/install) and run this again",
		},
		"an old Go without a proxy": {
			func(m *machine) {
				m.stub("go", `case "$*" in "env GOVERSION") exit 1 ;; *" -o "*) while [ "$1" != -o ]; do shift; done; echo program > "$2" ;; esac`)
			},
			"go is older than the Go 1.26.0 that go.mod asks for and could not fetch it; install it from https://go.dev/dl",
		},
		"modules that cannot be had": {
			func(m *machine) {
				m.stub("go",
					`case "$*" in "env GOVERSION") echo go1.26.8 ;; "mod download") exit 1 ;; *" -o "*) while [ "$1" != -o ]; do shift; done; echo program > "$2" ;; esac`)
			},
			"the Go modules could not be downloaded; check the network, or point GOPROXY at a proxy that has them",
		},
		"no PostgreSQL, not Debian": {
			func(m *machine) { notDebian(m); m.remove("initdb") },
			"PostgreSQL's server programs (initdb, postgres) are missing, the tests need them; install PostgreSQL 14 or newer and put its bin folder on PATH",
		},
		"no PgBouncer, not root": {
			func(m *machine) { notRoot(m); m.remove("pgbouncer") },
			"pgbouncer is missing, the tests reach PostgreSQL through it; install the package pgbouncer and run this again",
		},
		"no crun, not root": {
			func(m *machine) { notRoot(m); m.remove("crun") },
			"crun is missing, the tests run containers with it; install the package crun and run this again",
		},
		"no chromium, not root": {
			func(m *machine) { notRoot(m); m.remove("chromium") },
			"chromium is missing, the tests open the console's pages with it; install the package chromium and run this again",
		},
		"no Node.js, not root": {
			func(m *machine) { notRoot(m); m.remove("node") },
			"node or npm is missing or older than 18, the tests drive MCP clients with them; install Node.js 18 or newer with npm and run this again",
		},
		"an old Node.js": {
			func(m *machine) { m.stub("node", `exit 1`) },
			"node or npm is missing or older than 18, the tests drive MCP clients with them; install Node.js 18 or newer with npm and run this again",
		},
		"no registry of npm": {
			func(m *machine) { m.stub("npm", `exit 1`) },
			"the MCP clients of the tests could not be installed, see .cache/mcpclient/npm.log; check the network, or point npm at a registry that has them",
		},
		"no jq, not root": {
			func(m *machine) { notRoot(m); m.remove("jq") },
			"jq is missing; install it with your system's package manager and run this again",
		},
		"no registry and no mmdebstrap": {
			func(m *machine) {
				notRoot(m)
				m.write("docker", strings.Replace(m.read("docker"), `pull) `, `pull) exit 1; `, 1))
				m.program("docker")
			},
			"no registry answers and mmdebstrap is missing: docker load a python:3.12-slim, or on Debian or Ubuntu run: sudo apt-get install mmdebstrap",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := complete(t)
			c.lacks(m)
			said, ok := m.setup()
			if ok {
				t.Error("it was content")
			}
			lines := 0
			for line := range strings.Lines(said) {
				if strings.HasSuffix(strings.TrimSpace(line), c.says) {
					lines++
				}
			}
			if lines != 1 || !strings.Contains(said, "set-up is incomplete: see the 1 line(s) above") {
				t.Errorf("want one line that ends with\n%s\nit said:\n%s", c.says, said)
			}
			if installed := m.installed(); len(installed) > 0 && name != "an engine that cannot be installed" {
				t.Errorf("it installed %q", installed)
			}
		})
	}
}
