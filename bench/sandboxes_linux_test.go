package bench

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestEqualArgsKeepEveryFlag(t *testing.T) {
	t.Parallel()
	flags := strings.Fields(`run -i --rm --name secbox-sandbox-1 --label secbox.installation=i --label secbox.node=n --label secbox.exec=sandbox-1
		--memory 1024m --user 1000:1000 --entrypoint /opt/secbox/sandbox-init --mount type=bind,source=/w,target=/workspace sha256:cc79 --serve`)
	kept := slices.Clone(flags)
	got, err := equalArgs(flags, "other")
	want := strings.Fields(`run -i --rm --name other --label secbox.installation=i --label secbox.node=other --label secbox.exec=sandbox-1
		--memory 1024m --user 1000:1000 --entrypoint sleep --mount type=bind,source=/w,target=/workspace sha256:cc79 infinity`)
	if err != nil || !slices.Equal(got, want) || !slices.Equal(flags, kept) {
		t.Errorf("%q, %v", got, err)
	}
	for _, strange := range []string{"run --entrypoint x image", "run sha256:cc79 --serve"} {
		if got, err := equalArgs(strings.Fields(strange), "other"); err == nil {
			t.Errorf("%q became %q", strange, got)
		}
	}
}

// A process that comes and goes between two looks is seen by what it leaves in its parent's statistics; one that stays is seen itself.
func TestOffspringIsCounted(t *testing.T) {
	t.Parallel()
	parent := exec.Command("sh") // ours have children of other tests
	commands, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		commands.Close()
		if err := parent.Wait(); err != nil {
			t.Error(err)
		}
	})
	look := func() generation {
		g, err := offspring(parent.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	tell := func(script string) {
		if _, err := io.WriteString(commands, script+"; echo\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := answers.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	tell(":")
	before := look()
	tell("x=1")
	if n := before.grown(look()); n != 0 {
		t.Errorf("a shell that started nothing has started %d", n)
	}
	tell("cat </dev/null")
	if n := before.grown(look()); n != 1 {
		t.Errorf("one that has ended: %d", n)
	}
	before = look()
	tell("sleep 600 >/dev/null & kept=$!")
	if n := before.grown(look()); n < 1 {
		t.Errorf("one that lives: %d", n)
	}
	tell("kill $kept; wait $kept")
}

func TestThereIsNoOtherSide(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "hubs", DockerSide} {
		if err := ServeSide(name, os.Stdin, os.Stdout, nil); err == nil {
			t.Errorf("%q was served", name)
		}
	}
}
