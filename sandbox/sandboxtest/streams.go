//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"secbox/fault"
	"secbox/sandbox"
)

var streamCases = []testCase{
	{name: "LargeContentBothWays", run: bothWays},
	{name: "AStreamThatFails", run: failingStream},
	{name: "AStreamOverTheLimit", run: streamOverTheLimit, backend: true, limit: true},
	{name: "AWriterThatFails", run: failingWriter},
	{name: "OutputComesWhileTheCommandRuns", run: outputComes},
	{name: "OutputOfATalkingCommand", run: outputInOrder},
	{name: "ASlowWriter", run: slowWriter},
	{name: "OutputBeforeACancel", run: outputBeforeCancel},
	{name: "AnOutputWriterThatFails", run: failingOutput},
}

// bothWays streams more than a link keeps for repeating, in both directions.
func bothWays(b *bench) {
	const size = 20<<20 + 12345
	sent, got := sha256.New(), sha256.New()
	source := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	n, err := b.streamer().WriteFileFrom(b.ctx, b.at("large"), source, 0o640, b.user)
	if err != nil || n != size {
		b.Fatalf("%d bytes written: %v", n, err)
	}
	b.mode("large", 0o640)
	if n, err = b.streamer().ReadFileTo(b.ctx, b.at("large"), got, b.user); err != nil || n != size ||
		!bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		b.Fatalf("%d bytes read: %v", n, err)
	}
	for _, content := range []string{"", "small"} {
		n, err := b.streamer().WriteFileFrom(b.ctx, b.at("small"), strings.NewReader(content), 0o644, b.user)
		var out strings.Builder
		m, e := b.streamer().ReadFileTo(b.ctx, b.at("small"), &out, b.user)
		if err != nil || e != nil || n != int64(len(content)) || m != n || out.String() != content {
			b.Errorf("%q: %d %v, %d %v, %q", content, n, err, m, e, out.String())
		}
	}
}

// alone waits until a file is the only entry of the directory, listed or not.
func (b *bench) alone() {
	b.Helper()
	b.await("the temporary file to be removed", func() bool {
		entries, err := os.ReadDir(b.host)
		return err == nil && len(entries) == 1
	})
}

func failingStream(b *bench) {
	b.plant("file", "old")
	broken := errors.New("the source broke")
	for _, size := range []int64{0, 10, 6 << 20} {
		source := io.MultiReader(io.LimitReader(rand.NewChaCha8([32]byte{2}), size),
			readerFunc(func([]byte) (int, error) { return 0, broken }))
		if _, err := b.streamer().WriteFileFrom(b.ctx, b.at("file"), source, 0o644, b.user); !errors.Is(err, broken) {
			b.Errorf("after %d bytes: %v", size, err)
		}
		if b.found("file") != "old" {
			b.Errorf("after %d bytes the file was changed", size)
		}
	}
	b.alone()
}

// readerFunc is a function as a reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// zeros is an endless reader of zeros.
var zeros = readerFunc(func(p []byte) (int, error) {
	clear(p)
	return len(p), nil
})

func streamOverTheLimit(b *bench) {
	b.plant("file", "old")
	_, err := b.streamer().WriteFileFrom(b.ctx, b.at("file"), io.LimitReader(zeros, sandbox.MaxFileBytes+1), 0o644, b.user)
	if !fault.Is(err, fault.FileTooLarge) {
		b.Errorf("a byte over the limit: %v", err)
	}
	if b.found("file") != "old" {
		b.Error("the file was changed")
	}
	b.alone()
}

func failingWriter(b *bench) {
	b.plant("file", strings.Repeat("x", 1<<20))
	broken := errors.New("the sink broke")
	_, err := b.streamer().ReadFileTo(b.ctx, b.at("file"), writerFunc(func([]byte) (int, error) { return 0, broken }), b.user)
	if !errors.Is(err, broken) {
		b.Error(err)
	}
}

// outputComes runs a command that continues only when its output was seen.
func outputComes(b *bench) {
	for _, stream := range []string{"1", "2"} {
		saw := writerFunc(func(p []byte) (int, error) {
			return len(p), os.WriteFile(filepath.Join(b.host, "seen-"+stream), nil, 0o644)
		})
		spec := b.line("echo word >&" + stream + "; until [ -e seen-" + stream + " ]; do sleep 0.01; done; exit 6")
		stdout, stderr := io.Writer(saw), io.Writer(nil)
		if stream == "2" {
			stdout, stderr = stderr, stdout
		}
		r, err := b.streamer().ExecTo(b.ctx, spec, stdout, stderr)
		if err != nil || r.ExitCode != 6 || r.Stdout != "" || r.Stderr != "" || r.StdoutBytes+r.StderrBytes != 5 {
			b.Errorf("%+v %v", r, err)
		}
	}
}

func outputInOrder(b *bench) {
	var want strings.Builder
	for i := range 2000 {
		want.WriteString("line " + itoa(i) + "\n")
	}
	var out, errs strings.Builder
	line := `i=0; while [ $i -lt 2000 ]; do echo "line $i"; echo "line $i" >&2; i=$((i+1)); done`
	r, err := b.streamer().ExecTo(b.ctx, b.line(line), &out, &errs)
	if err != nil || out.String() != want.String() || errs.String() != want.String() || r.StdoutBytes != int64(want.Len()) {
		b.Errorf("%d and %d bytes of %d came: %+v %v", out.Len(), errs.Len(), want.Len(), r, err)
	}
}

// slowWriter blocks until the command is dead, which must not depend on it.
func slowWriter(b *bench) {
	mark := marker()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var once sync.Once
	blocked := writerFunc(func(p []byte) (int, error) {
		once.Do(func() {
			cancel()
			b.await("the command to die", func() bool { return b.f.Processes(mark) == 0 })
		})
		return len(p), nil
	})
	_, err := b.streamer().ExecTo(ctx, b.line("sleep "+mark+" & yes"), blocked, nil)
	if !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	b.none(mark)
}

// outputBeforeCancel: what a command wrote before it is killed is delivered, even when the writer
// has not taken it yet.
func outputBeforeCancel(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var out strings.Builder
	slow := writerFunc(func(p []byte) (int, error) {
		if out.Len() == 0 {
			b.plant("seen", "")
			b.await("the command to write more", func() bool { _, err := os.Stat(filepath.Join(b.host, "made")); return err == nil })
			cancel()
		}
		return out.Write(p)
	})
	line := "echo first; until [ -e seen ]; do sleep 0.01; done; echo second; : >made; sleep 600"
	if _, err := b.streamer().ExecTo(ctx, b.line(line), slow, nil); !errors.Is(err, context.Canceled) || out.String() != "first\nsecond\n" {
		b.Errorf("%q, %v", out.String(), err)
	}
}

func failingOutput(b *bench) {
	calls := 0
	broken := writerFunc(func([]byte) (int, error) {
		calls++
		return 0, errors.New("no more")
	})
	var errs strings.Builder
	r, err := b.streamer().ExecTo(b.ctx, b.line("head -c 1000000 /dev/zero; echo end >&2; exit 2"), broken, &errs)
	if err != nil || r.ExitCode != 2 || calls != 1 || errs.String() != "end\n" || r.StdoutBytes != 1_000_000 {
		b.Errorf("%d calls, %q, %+v %v", calls, errs.String(), r, err)
	}
	if r, err = b.streamer().ExecTo(b.ctx, b.line("head -c 1000000 /dev/zero; exit 2"), nil, nil); err != nil || r.ExitCode != 2 ||
		r.StdoutBytes != 1_000_000 {
		b.Errorf("%+v %v", r, err)
	}
}
