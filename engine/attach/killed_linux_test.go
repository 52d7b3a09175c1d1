package attach

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// victimOf makes the test binary a process that attaches and detaches until it is killed: the
// parent of its base, the base's name, and a project.
const victimOf = "SECBOX_ATTACH_VICTIM_OF"

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv(victimOf), ":"); len(args) == 3 {
		fmt.Fprintln(os.Stderr, victim(args[0], args[1], args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim opens a base, uses several points of it at once, closes it, and begins again. It prints a
// byte for each directory that it attached and detached.
func victim(parent, name, project string) error {
	var dirs []Dir
	for _, name := range []string{"inputs", "work", "artifacts"} {
		from, err := os.Open(filepath.Join(project, name))
		if err != nil {
			return err
		}
		dirs = append(dirs, Dir{name, from, name == "inputs"})
	}
	for {
		b, err := Open(parent, name)
		if err != nil {
			return err
		}
		results := make(chan error)
		const points = 4
		for n := range points {
			go func() { results <- use(b, strconv.Itoa(n), dirs) }()
		}
		for range points {
			err = errors.Join(err, <-results)
		}
		if err = errors.Join(err, b.Close()); err != nil {
			return err
		}
	}
}

func use(b *Base, name string, dirs []Dir) error {
	p, err := b.NewPoint(name, "inputs", "work", "artifacts")
	for range 20 {
		if err == nil {
			err = p.Attach(dirs...)
		}
		if err == nil {
			err = p.Detach()
		}
		if err == nil {
			_, err = os.Stdout.Write([]byte{'.'})
		}
	}
	if err != nil {
		return err
	}
	return p.Remove()
}

// TestKilled kills processes at random moments of 10,000 attachments. The next one removes what is
// left, and nothing else.
func TestKilled(t *testing.T) {
	t.Parallel()
	const pairs, kills = 10_000, 50
	parent := filepath.Join(t.TempDir(), "private")
	dir, dirs := project(t)
	used, err := Open(parent, "used")
	must(t, err)
	p, err := used.NewPoint("p")
	must(t, err)
	must(t, p.Attach(dirs...))
	left := 0
	for n := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimOf+"="+fmt.Sprintf("%s:node-%d:%s", parent, n%3, dir))
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		read := bufio.NewReader(out)
		for range pairs/kills + rand.IntN(80) {
			if _, err := read.ReadByte(); err != nil {
				t.Error(err)
				break
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		if at, err := mountsBelow(filepath.Join(parent, fmt.Sprintf("node-%d", n%3))); err != nil {
			t.Error(err)
		} else if len(at) > 0 {
			left++
		}
	}
	t.Logf("%d of %d processes left mounts", left, kills)
	if left == 0 {
		t.Error("no process was killed while its base was open")
	}
	last, err := Open(parent, "last")
	must(t, err)
	if content, err := os.ReadFile(filepath.Join(p.Path(), "work/of")); err != nil || string(content) != "work" {
		t.Errorf("the base in use: %q %v", content, err)
	}
	must(t, errors.Join(last.Close(), used.Close()))
	nothingLeft(t, parent)
	if info, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(info), dir) {
		t.Errorf("the project is mounted: %v\n%s", err, info)
	}
	untouched(t, dir)
}
