//go:build linux

package sandboxtest

import (
	"secbox/fault"
	"secbox/sandbox"
)

var closingCases = []testCase{
	{name: "CloseForUser", run: closeForUser, alone: true},
	{name: "Close", run: closeAll, alone: true},
}

// running starts a command that does not end by itself, and returns a channel with its error.
func (b *bench) running(mark string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := b.s.Exec(b.ctx, b.line("(setsid sleep "+mark+" &); sleep "+mark))
		ended <- err
	}()
	b.await("the command to run", func() bool {
		select {
		case err := <-ended:
			b.Fatalf("the command ended at once: %v", err)
		default:
		}
		return b.f.Processes("sleep\x00"+mark) >= 2
	})
	return ended
}

func closeForUser(b *bench) {
	b.plant("file", "kept")
	mark := marker()
	ended := b.running(mark)
	b.must(b.s.CloseForUser(b.user))
	b.none(mark)
	if err := <-ended; err == nil {
		b.Error("the command that was killed ended well")
	}
	b.must(b.s.CloseForUser(b.user))
	b.must(b.s.CloseForUser(sandbox.User{ID: b.user.ID}))
	b.must(b.s.CloseForUser(sandbox.User{AgentID: "agent", ID: "unknown"}))
	got, err := b.s.ReadFile(b.ctx, b.at("file"), b.user)
	if err != nil || string(got) != "kept" {
		b.Errorf("%q %v", got, err)
	}
	if r := b.shell("cat file"); r.Stdout != "kept" {
		b.Errorf("%+v", *r)
	}
}

func closeAll(b *bench) {
	mark := marker()
	ended := b.running(mark)
	b.must(b.s.Close())
	b.none(mark)
	if err := <-ended; err == nil {
		b.Error("the command that was killed ended well")
	}
	b.must(b.s.Close())
	if b.s.Name() == "" {
		b.Error("it has no name")
	}
	b.each(b.at("file"), func(method string, err error) {
		if !fault.Is(err, fault.ShuttingDown) {
			b.Errorf("%s after Close: %v", method, err)
		}
	})
	if _, err := b.s.GetShell(b.ctx, b.user); !fault.Is(err, fault.ShuttingDown) {
		b.Error(err)
	}
}
