//go:build unix

// Package docs has only tests: they run the commands of README.md and docs/, as a newcomer would
// type them, and compare the answers.
package docs

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The language of a fenced block says what it is: sh runs here, and an answer (text, or any
// language followed by the word answer) is what the sh block before it must print. In answers, …
// stands for any part of a line, and a line of … for any lines.
//
// Commands that cannot run here are console or powershell blocks, and each must be in this list, by
// its page and first line.
var notRun = map[string]string{
	"README.md: make demo     # sets the machine up, shows a real exec and a refused one, and ends with a link to the exec's page":           "scripts/demo_test.go runs the demo; the server of this test is that of make run",
	"README.md: docker compose up                                        # core-api, its database and the sandbox image; takes minutes once": "images/compose_test.go and the part compose of make test-reach run it",
	"CONTRIBUTING.md: make setup     # installs what is missing: Go modules, Docker engine, PostgreSQL, PgBouncer, the sandbox image":        "sets machines up; continuous integration runs these",
	"deployment.md: sudo make install         # sets the machine up like make demo; core-api and secbox go into /usr/local/bin (PREFIX=…)":   "writes to /usr/local",

	"deployment.md: sudo apt-get install ./secbox-0.2.0-linux-amd64.deb      # or: sudo dnf install ./secbox-0.2.0-linux-amd64.rpm":       "needs a release and systemd",
	"releases.md: minisign -V -P RWQ… -m SHA256SUMS      # prints version and commit":                                                     "needs a release",
	"releases.md: minisign -G -s release.key             # once; it prints the public key and asks for a password. Keep release.key safe": "takes ten minutes; scripts/dist has tests of its parts",

	"platforms.md: docker compose up                                        # builds the images and starts core-api with its database": "images/compose_test.go and the part compose of make test-reach run it",

	"platforms.md: systemctl enable --now podman.socket":                                                        "needs podman; the part podman of make test-reach does this",
	"platforms.md: go build ./cmd/core-api":                                                                     "makes a program of Windows",
	"deployment.md: sudo systemctl enable --now core-api":                                                       "needs systemd",
	"deployment.md: docker compose up                                        # with --detach in the background": "images/compose_test.go and the part compose of make test-reach run it",

	"images.md: make images": "builds the images that other tests use meanwhile",
	"images.md: bin/secbox exec --image data --out figures -- python3 -c '": "needs the image of the block before",

	"images.md: bin/core-api image build data --from images/sandbox-data.yaml --state-dir .cache/run/state --workspace-root .cache/run/workspaces":          "needs a package mirror",
	"mcp.md: npx @modelcontextprotocol/inspector --cli http://127.0.0.1:8003/mcp --transport http \\":                                                       "needs the npm registry; e2e runs the inspector that make setup installs",
	"packages.md: core-api skills repair --dry-run      # prints the repairs":                                                                               "needs a stopped server; e2e/repair_test.go runs it",
	"performance.md: make bench                                        # some twenty minutes":                                                               "takes twenty minutes; cmd/bench has a short run as its test",
	"performance-internals.md: make bench                                                        # some twenty minutes":                                     "takes twenty minutes; cmd/bench has a short run as its test",
	"performance-internals.md: go test ./e2e -run - -bench WarmExec -benchtime 500x -cpuprofile cpu.pprof":                                                  "takes minutes",
	"runners.md: secbox runner --server wss://core-api.example.com --token-file laptop.token --workspace dir":                                               "needs a TLS certificate",
	"mcp.md: CORE_API_MCP_SERVERS='{\"agent007\": {\"words\": {\"command\": \"python3\", \"args\": [\"mcp/words.py\"], \"tools\": [\"count\"]}}}' make run": "starts the server that this test has started",
	"skills.md: CORE_API_SANDBOX_SKILLS_DIR=$PWD/my-skills make run":                                                                                        "starts the server that this test has started",
	"webhooks.md: curl -s -X PUT http://127.0.0.1:8003/webhooks/default -H 'Content-Type: application/json' -d '{\"callback_url\": " +
		"\"https://hooks.example.com/secbox\"}'": "the server of this test allows no host",
	"network.md: curl -s http://127.0.0.1:8003/sandbox/execs -H 'Content-Type: application/json' -d '{":                                               "needs a host to reach; e2e/network_test.go has hosts of its own",
	"webhooks.md: curl -s -X POST http://127.0.0.1:8003/webhooks/secret | jq -r .secret":                                                              "the server of this test allows no host, and no service waits for a webhook",
	"kubernetes.md: make images                                                                                  # builds both images, see images.md": "needs a registry and a cluster; scripts/demo-kubernetes.sh does the rest",
	"kubernetes.md: kubectl get pods -n secbox-jobs -L secbox.exec":                                                                                   "needs a cluster",
	"mcp.md: git clone URL-OF-THIS-REPOSITORY ../secbox":                                                                                              "needs the address of a repository; skills/provider_import_test.go does the rest",
}

// TestMain runs more pages at once than there are cores: their commands wait for containers.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// block is a fenced block of a page.
type block struct {
	line       int // of its first line
	text       string
	answer     string
	answerLine int // 0: none
}

// TestPages runs each page's commands in one shell, in order; all pages share one server.
func TestPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	pages = append([]string{"../README.md", "../CONTRIBUTING.md"}, pages...)
	seen := map[string]bool{}
	runnable := map[string][]block{}
	for _, page := range pages {
		var skipped []string
		if runnable[page], skipped, err = blocksOf(read(t, page)); err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, first := range skipped {
			key := filepath.Base(page) + ": " + first
			if seen[key] = true; notRun[key] == "" {
				t.Errorf("%s is not run, and notRun has no reason for it", key)
			}
		}
	}
	for key := range maps.Keys(notRun) {
		if !seen[key] {
			t.Errorf("notRun has %q, which is on no page", key)
		}
	}
	s := start(t)
	for _, page := range pages {
		if len(runnable[page]) == 0 {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			s.run(t, page, runnable[page])
		})
	}
}

// blocksOf finds the sh blocks with their answers, and the first lines of blocks whose commands are
// not run.
func blocksOf(page string) (out []block, skipped []string, err error) {
	var language string
	var lines []string
	open, since := false, 0
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimLeft(line, " >\t"), "```") && !strings.HasPrefix(line, "```"):
			return nil, nil, fmt.Errorf("line %d: a block that is indented is not found by readers of blocks", i+1)
		case !open && strings.HasPrefix(line, "```"):
			open, since, language, lines = true, i+1, strings.TrimPrefix(line, "```"), nil
		case open && line == "```":
			open = false
			text := strings.Join(lines, "\n") + "\n"
			switch {
			case language == "sh":
				out = append(out, block{line: since, text: text})
			case language == "console" || language == "powershell":
				skipped = append(skipped, lines[0])
			case language == "text" || strings.HasSuffix(language, " answer"):
				if len(out) == 0 || out[len(out)-1].answerLine > 0 {
					return nil, nil, fmt.Errorf("line %d: an answer without commands before it", since)
				}
				out[len(out)-1].answer, out[len(out)-1].answerLine = text, since
			case !slices.Contains([]string{"json", "yaml", "ini", "markdown", "go", "js", "diagram"}, language):
				return nil, nil, fmt.Errorf("line %d: a block of %q; sh, console, text and a few others are known", since, language)
			}
		case open:
			lines = append(lines, line)
		}
	}
	if open {
		return nil, nil, fmt.Errorf("line %d: a block that does not end", since)
	}
	return out, skipped, nil
}

// ownImage is the image that images.md allows and builds.
const ownImage = "greeting-sandbox:1"

// ownServer is the MCP server that mcp.md configures.
const ownServer = `{"agent007": {"words": {"command": "python3", "args": ["mcp/words.py"], "tools": ["count"]}}}`

// server is a server as `make run` starts it in a checkout.
type server struct{ dir, addr string }

func start(t *testing.T) server {
	t.Helper()
	s := server{dir: t.TempDir()}
	if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil { // the container's user passes it
		t.Fatal(err)
	}
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	build := exec.Command("go", "build", "-trimpath", "-o", s.dir+"/bin/", "secbox/cmd/core-api", "secbox/cmd/secbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dir := range []string{".cache/run/workspaces", "my-skills"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// images.md builds this image; until then another one has its name, or health would miss it.
	if out, err := exec.Command("docker", "tag", "secbox-sandbox:latest", ownImage).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", ownImage).Run() }) // after the server's end
	cmd := exec.Command("bin/core-api", "serve", "--addr", "127.0.0.1:0", "--log-format", "json",
		"--workspace-root", s.dir+"/.cache/run/workspaces", "--state-dir", s.dir+"/.cache/run/state", "--skills-dir", s.dir+"/my-skills")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "CORE_API_SANDBOX_IMAGES="+ownImage, "CORE_API_SANDBOX_PREVIEW_DOMAIN=preview.localhost", "CORE_API_MCP_SERVERS="+ownServer)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	ended, addr := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			var line struct{ Level, Msg, Addr string }
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level != "INFO" {
				fmt.Fprintln(&said, lines.Text())
			} else if line.Msg == "core-api serves" {
				addr <- line.Addr
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("core-api: %v\n%s", err, said.String())
		}
	})
	select {
	case s.addr = <-addr:
	case <-ended:
		t.Fatal("core-api does not start")
	case <-time.After(2 * time.Minute):
		t.Fatal("core-api does not serve")
	}
	return s
}

// run types a page's blocks into one shell in a directory that looks like the checkout.
func (s server) run(t *testing.T, page string, blocks []block) {
	dir := t.TempDir()
	for _, name := range []string{"bin", ".cache", "my-skills"} {
		if err := os.Symlink(filepath.Join(s.dir, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const mark = "@@ the next block @@"
	var script strings.Builder
	script.WriteString("set -eo pipefail\nexec 2>&1\n")
	for _, b := range blocks {
		fmt.Fprintf(&script, "%s\nprintf '\\n%s\\n'\n", strings.ReplaceAll(b.text, "127.0.0.1:8003", s.addr), mark)
	}
	cmd := exec.Command("bash", "-c", script.String()) // not on standard input, which secbox exec passes on
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SECBOX_SERVER=http://"+s.addr, "SECBOX_CONFIG="+filepath.Join(dir, "login.json"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// What a page leaves in the background, and what hangs, ends with its group.
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	timeout := time.AfterFunc(2*time.Minute, end)
	var printed strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&printed, out)
	}()
	state, err := cmd.Process.Wait()
	end()
	timeout.Stop()
	<-done
	answers := strings.Split(strings.ReplaceAll(printed.String(), s.addr, "127.0.0.1:8003"), "\n"+mark+"\n")
	for i, b := range blocks {
		if i >= len(answers)-1 {
			t.Fatalf("%s:%d: the commands failed (%v, %v):\n%s\nthey printed:\n%s", page, b.line, state, err, b.text, answers[len(answers)-1])
		}
		got := strings.TrimRight(answers[i], "\n") + "\n"
		switch {
		case b.answerLine > 0 && !pattern(b.answer).MatchString(got):
			t.Errorf("%s:%d: the answer is another one.\n--- got\n%s--- the page says\n%s", page, b.answerLine, got, b.answer)
		case b.answerLine == 0 && problem.MatchString(got):
			t.Errorf("%s:%d: an error:\n%s", page, b.line, got)
		}
	}
}

// problem is in error documents of both kinds.
var problem = regexp.MustCompile(`"code": ?"[a-z_]+"`)

// pattern makes an answer with … in it match.
func pattern(answer string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^")
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, " \n")
		if strings.TrimSpace(line) == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*?") + " *\n")
	}
	return regexp.MustCompile(b.String() + "$")
}

// TestLinks follows the links between pages, to their headings too, and looks for the packages that
// SECURITY.md names.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../*.md")
	more, moreErr := filepath.Glob("*.md")
	if err != nil || moreErr != nil {
		t.Fatal(err, moreErr)
	}
	for _, page := range append(pages, more...) {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(t, page), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s has no heading %q", page, target, anchor)
			}
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| .* \| .* \| (`+"`.*`"+`) \|$`).FindAllStringSubmatch(read(t, "../SECURITY.md"), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			if _, err := os.Stat(filepath.Join("..", strings.Trim(name, "`"))); err != nil {
				t.Errorf("SECURITY.md: %v", err)
			}
		}
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) (out []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer, got string
		want        bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "a\nb\n", false},
		{"a.b\n", "axb\n", false},
		{"id …, done\n", "id 01-23, done\n", true},
		{"id …\n", "id 1\nid 2\n", false},
		{"a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"a\n  …\nz\n", "a\nz\n", true},
		{"a\n…\nz\n", "a\nb\n", false},
	} {
		if got := pattern(c.answer).MatchString(c.got); got != c.want {
			t.Errorf("%q as %q: %v", c.got, c.answer, got)
		}
	}
}
