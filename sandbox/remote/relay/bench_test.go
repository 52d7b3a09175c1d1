//go:build linux

package relay_test

import (
	"bytes"
	"testing"

	"secbox/sandbox"
)

// BenchmarkNodes compares calls of a machine through the node that has it, calls through another
// node, and calls of a runner whose link is relayed.
func BenchmarkNodes(b *testing.B) {
	c := newCluster(b)
	home, other := c.node("a"), c.node("b")
	c.run(home.url, b.TempDir(), "laptop")
	await(b, "the runner to connect", func() bool { return home.Here() == 1 })
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for _, kind := range []struct {
		name string
		call func(*node) error
	}{
		{"exec", func(n *node) error {
			_, err := n.Exec(b.Context(), sandbox.ExecSpec{Command: "true", User: user})
			return err
		}},
		{"stat", func(n *node) error {
			_, err := n.Stat(b.Context(), "/workspace", user)
			return err
		}},
		{"write16MiB", func(n *node) error { return n.WriteFile(b.Context(), "/workspace/large", content, 0o644, user) }},
		{"read16MiB", func(n *node) error {
			_, err := n.ReadFile(b.Context(), "/workspace/large", user)
			return err
		}},
	} {
		for where, n := range map[string]*node{"home": home, "other": other} {
			b.Run(kind.name+"/"+where, func(b *testing.B) {
				for b.Loop() {
					if err := kind.call(n); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
