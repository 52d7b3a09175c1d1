//go:build linux

package docker_test

import (
	"os/exec"
	"sync"
	"testing"

	"secbox/sandbox"
)

// BenchmarkExec measures a command in a running container, and the same with `docker exec`.
func BenchmarkExec(b *testing.B) {
	s := openFor(b, nil)
	spec := sandbox.ExecSpec{Command: "true", User: user}
	if _, err := s.Exec(b.Context(), spec); err != nil {
		b.Fatal(err)
	}
	container := s.containers()[0]
	ours := func() error {
		_, err := s.Exec(b.Context(), spec)
		return err
	}
	theirs := func() error { return exec.CommandContext(b.Context(), "docker", "exec", container, "true").Run() }
	for name, f := range map[string]func() error{"sandbox": ours, "docker-exec": theirs} {
		for at, n := range map[string]int{"one": 1, "four": 4} {
			b.Run(name+"/"+at, func(b *testing.B) {
				todo := make(chan struct{}, b.N)
				for range b.N {
					todo <- struct{}{}
				}
				close(todo)
				var all sync.WaitGroup
				for range n {
					all.Go(func() {
						for range todo {
							if err := f(); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}
