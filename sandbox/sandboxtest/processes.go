//go:build linux

package sandboxtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"

	"secbox/fault"
	"secbox/sandbox"
)

var processCases = []testCase{
	{name: "AConversation", run: conversation},
	{name: "ManyConversations", run: manyConversations},
	{name: "Signals", run: signals},
	{name: "ManySignals", run: manySignals},
	{name: "InputOfAnySize", run: inputOfAnySize},
	{name: "InputThatNeverComes", run: inputThatNeverComes},
	{name: "InputThatIsNotRead", run: inputThatIsNotRead},
	{name: "InputThatFails", run: inputThatFails},
	{name: "OutputThatIsNotRead", run: outputThatIsNotRead},
	{name: "AProcessThatCannotStart", run: cannotStart},
}

// start starts a line, whose stderr is dropped.
func (b *bench) start(line string) *sandbox.Process {
	b.Helper()
	p := sandbox.Start(b.ctx, b.streamer(), b.line(line))
	b.must2(p.Stderr.Close())
	return p
}

// converse says n words, each after the answer to the one before.
func (b *bench) converse(n int) {
	p := sandbox.Start(b.ctx, b.streamer(), b.line(`while read -r word; do echo "got $word"; echo "err $word" >&2; done; exit 7`))
	var wantErr, gotErr strings.Builder
	var stderr sync.WaitGroup
	stderr.Go(func() { _, _ = io.Copy(&gotErr, p.Stderr) })
	stdout := bufio.NewReader(p.Stdout)
	for i := range n {
		if _, err := io.WriteString(p.Stdin, itoa(i)+"\n"); err != nil {
			b.Error(err)
			return
		}
		got, err := stdout.ReadString('\n')
		if err != nil || got != "got "+itoa(i)+"\n" {
			b.Errorf("%d: %q %v", i, got, err)
			return
		}
		wantErr.WriteString("err " + itoa(i) + "\n")
	}
	b.must2(p.Stdin.Close())
	if _, err := stdout.ReadByte(); !errors.Is(err, io.EOF) {
		b.Errorf("at the end: %v", err)
	}
	if stderr.Wait(); gotErr.String() != wantErr.String() {
		b.Errorf("stderr: %q", gotErr.String())
	}
	if r, err := p.Wait(); err != nil || r.ExitCode != 7 {
		b.Errorf("%+v %v", r, err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		b.Errorf("a signal after the end: %v", err)
	}
	if _, err := p.Stdin.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		b.Errorf("input after the end: %v", err)
	}
}

func conversation(b *bench) { b.converse(50) }

func manyConversations(b *bench) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { b.converse(10) })
	}
	all.Wait()
}

// signals sends each signal to a shell and its child.
func signals(b *bench) {
	for s, name := range map[syscall.Signal]string{syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGTERM: "TERM"} {
		mark := marker()
		p := b.start("trap 'echo " + name + "; exit 5' " + name + "; sh -c 'echo ready; exec sleep " + mark + "'; true")
		stdout := bufio.NewReader(p.Stdout)
		_, err := stdout.ReadString('\n')
		b.must(err)
		b.must(p.Signal(s)) // the shell runs the trap when its child has ended: the child gets the signal, too
		rest, err := io.ReadAll(stdout)
		if err != nil || string(rest) != name+"\n" {
			b.Errorf("%s: %q %v", name, rest, err)
		}
		if r, err := p.Wait(); err != nil || r.ExitCode != 5 {
			b.Errorf("%s: %+v %v", name, r, err)
		}
		b.none(mark)
	}
	for s, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGKILL: 137} {
		mark := marker()
		p := b.start("echo ready; (setsid sleep " + mark + " &) ; exec sleep " + mark)
		_, err := bufio.NewReader(p.Stdout).ReadString('\n')
		b.must(err)
		b.must(p.Signal(s))
		if r, err := p.Wait(); err != nil || r.ExitCode != code || r.TimedOut || r.Canceled {
			b.Errorf("%s: %+v %v", s, r, err)
		}
		b.none(mark)
	}
	if err := b.start("true").Signal(syscall.SIGUSR1); !fault.Is(err, fault.InvalidRequest) {
		b.Errorf("SIGUSR1: %v", err)
	}
}

// manySignals floods a command that ignores them: it goes on, and takes input.
func manySignals(b *bench) {
	p := b.start("trap '' TERM HUP; echo ready; read -r line; echo $line")
	stdout := bufio.NewReader(p.Stdout)
	_, err := stdout.ReadString('\n')
	b.must(err)
	for range 200 {
		b.must(p.Signal(syscall.SIGTERM))
		b.must(p.Signal(syscall.SIGHUP))
	}
	_, err = io.WriteString(p.Stdin, "word\n")
	b.must(err)
	if got, err := stdout.ReadString('\n'); err != nil || got != "word\n" {
		b.Errorf("%q %v", got, err)
	}
	if r, err := p.Wait(); err != nil || r.ExitCode != 0 {
		b.Errorf("%+v %v", r, err)
	}
}

func inputOfAnySize(b *bench) {
	for _, size := range []int64{0, 1, 65536, 65537, 5<<20 + 1} {
		sent, got := sha256.New(), sha256.New()
		spec := b.line("cat")
		// In small and large pieces.
		spec.StdinFrom = io.TeeReader(io.MultiReader(
			io.LimitReader(rand.NewChaCha8([32]byte{3}), size/2), io.LimitReader(rand.NewChaCha8([32]byte{4}), size-size/2),
		), sent)
		r, err := b.streamer().ExecTo(b.ctx, spec, got, nil)
		if err != nil || r.ExitCode != 0 || r.StdoutBytes != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
			b.Errorf("%d bytes: %+v %v", size, r, err)
		}
	}
}

// inputThatNeverComes: a reader that blocks delays neither the end of a command nor its death.
func inputThatNeverComes(b *bench) {
	never, never2 := io.Pipe()
	defer never2.Close()
	spec := b.line("exit 3")
	spec.StdinFrom = never
	if r, err := b.s.Exec(b.ctx, spec); err != nil || r.ExitCode != 3 {
		b.Errorf("%+v %v", r, err)
	}
	mark := marker()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	spec = b.line("echo ready; sleep " + mark)
	spec.StdinFrom = never
	ready := writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	if _, err := b.streamer().ExecTo(ctx, spec, ready, nil); !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	b.none(mark)
}

// inputThatIsNotRead: the writer waits, and is released by the command's end.
func inputThatIsNotRead(b *bench) {
	for _, line := range []string{
		"until [ -e go ]; do sleep 0.01; done; exit 4",
		"exec 0<&-; until [ -e go ]; do sleep 0.01; done; exit 4",
	} {
		_ = os.Remove(b.host + "/go")
		p := b.start(line)
		wrote := make(chan error, 1)
		go func() {
			_, err := io.Copy(p.Stdin, zeros)
			wrote <- err
		}()
		b.plant("go", "")
		if r, err := p.Wait(); err != nil || r.ExitCode != 4 {
			b.Errorf("%+v %v", r, err)
		}
		if err := <-wrote; !errors.Is(err, io.ErrClosedPipe) {
			b.Errorf("the writer: %v", err)
		}
	}
}

func inputThatFails(b *bench) {
	spec := b.line("cat; exit 6")
	spec.StdinFrom = io.MultiReader(strings.NewReader("before"),
		readerFunc(func([]byte) (int, error) { return 0, errors.New("the source broke") }))
	if r, err := b.s.Exec(b.ctx, spec); err != nil || r.ExitCode != 6 || r.Stdout != "before" {
		b.Errorf("%+v %v", r, err)
	}
}

// outputThatIsNotRead: the end of the context ends the command and releases Wait.
func outputThatIsNotRead(b *bench) {
	mark := marker()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	p := sandbox.Start(ctx, b.streamer(), b.line("sleep "+mark+" & yes"))
	_, err := p.Stdout.Read(make([]byte, 1))
	b.must(err)
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	if _, err := io.Copy(io.Discard, p.Stdout); !errors.Is(err, context.Canceled) {
		b.Errorf("the reader: %v", err)
	}
	b.none(mark)
}

func cannotStart(b *bench) {
	spec := b.line("true")
	spec.Dir = b.at("missing")
	p := sandbox.Start(b.ctx, b.streamer(), spec)
	_, readErr := p.Stdout.Read(make([]byte, 1))
	if _, err := p.Wait(); !errors.Is(err, os.ErrNotExist) || !errors.Is(readErr, os.ErrNotExist) {
		b.Errorf("%v, %v", err, readErr)
	}
}
