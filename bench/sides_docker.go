package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"secbox/sandbox"
)

// DockerTasks are what the docker sandbox's side does.
type DockerTasks struct {
	Sandbox sandbox.Backend
	Ended   func() error // closes what the sandbox is made of, after it; may be nil
	execs   []string     // the docker exec to compare with
}

// Exec runs true in the user's container.
func (t *DockerTasks) Exec(_ bool, took *time.Duration) error {
	begun := time.Now()
	r, err := t.Sandbox.Exec(context.Background(), sandbox.ExecSpec{Command: "true", User: linkUser})
	*took = time.Since(begun)
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("true ended with %d: %s", r.ExitCode, r.Stderr)
	}
	return err
}

// Compare says which command line is the other side.
func (t *DockerTasks) Compare(argv []string, _ *bool) error {
	t.execs = argv
	return nil
}

// PlainExec runs true by the docker CLI.
func (t *DockerTasks) PlainExec(_ bool, took *time.Duration) error {
	begun := time.Now()
	out, err := exec.Command(t.execs[0], t.execs[1:]...).CombinedOutput()
	*took = time.Since(begun)
	if err != nil {
		return fmt.Errorf("docker exec: %w: %s", err, out)
	}
	return nil
}

// Storm is so many execs, so many at once.
type Storm struct {
	Execs, AtOnce int
	Plain         bool
}

// Many does them.
func (t *DockerTasks) Many(s Storm, took *time.Duration) error {
	one := t.Exec
	if s.Plain {
		one = t.PlainExec
	}
	begun := time.Now()
	err := several(context.Background(), s.Execs, s.AtOnce, func(context.Context, int) error {
		var each time.Duration
		return one(false, &each)
	})
	*took = time.Since(begun)
	return err
}

// Files does at least n operations on files and answers how many.
func (t *DockerTasks) Files(n int, done *int) error {
	ctx, s, user := context.Background(), t.Sandbox, linkUser
	for i := 0; *done < n; i++ {
		dir := fmt.Sprintf("%s/files/%d", sandbox.Root, i)
		path, want := dir+"/file", strings.Repeat("content ", 512)
		for _, operation := range []func() error{
			func() error { return s.MkdirAll(ctx, dir, 0o755, user) },
			func() error { return s.WriteFile(ctx, path, []byte(want), 0o644, user) },
			func() error {
				got, err := s.ReadFile(ctx, path, user)
				if err == nil && string(got) != want {
					err = errors.New("other content was read")
				}
				return err
			},
			func() error { _, err := s.Stat(ctx, path, user); return err },
			func() error { _, err := s.ReadDir(ctx, dir, user); return err },
			func() error { _, err := s.WriteFileFrom(ctx, path, strings.NewReader(want), 0o644, user); return err },
			func() error { _, err := s.ReadFileTo(ctx, path, new(strings.Builder), user); return err },
			func() error { return s.Remove(ctx, path, user) },
			func() error { return s.RemoveAll(ctx, sandbox.Root+"/files", user) },
		} {
			if err := operation(); err != nil {
				return err
			}
			*done++
		}
	}
	return nil
}

// Close ends the sandbox.
func (t *DockerTasks) Close() error {
	err := t.Sandbox.Close()
	if t.Ended != nil {
		err = errors.Join(err, t.Ended())
	}
	return err
}
