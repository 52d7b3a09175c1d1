//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"secbox/sandbox"
)

var contextCases = []testCase{
	{name: "EndedBefore", run: endedBefore},
	{name: "EndsDuringAStream", run: endsDuringStream},
	{name: "DeadlineOfTheContext", run: deadline},
	{name: "EndsDuringAnyCall", run: endsDuringAnyCall},
}

func endedBefore(b *bench) {
	b.plant("file", "x")
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	late, stop := context.WithDeadline(b.ctx, time.Now().Add(-time.Second))
	defer stop()
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{ctx, context.Canceled}, {late, context.DeadlineExceeded}} {
		one := *b
		one.ctx = c.ctx
		one.each(b.at("file"), func(method string, err error) {
			if !errors.Is(err, c.want) {
				b.Errorf("%s: %v, want %v", method, err, c.want)
			}
		})
	}
	if b.found("file") != "x" {
		b.Error("the file was changed")
	}
}

func endsDuringStream(b *bench) {
	b.plant("file", "old")
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	read := 0
	source := readerFunc(func(p []byte) (int, error) { // endless
		if read += len(p); read > 8<<20 {
			cancel()
		}
		clear(p)
		return len(p), nil
	})
	if _, err := b.streamer().WriteFileFrom(ctx, b.at("file"), source, 0o644, b.user); !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	if b.found("file") != "old" {
		b.Error("the file was changed")
	}
	if _, err := b.streamer().WriteFileFrom(b.ctx, b.at("large"), io.LimitReader(zeros, 32<<20), 0o644, b.user); err != nil {
		b.Fatal(err)
	}
	ctx, cancel = context.WithCancel(b.ctx)
	defer cancel()
	var got bytes.Buffer
	sink := writerFunc(func(p []byte) (int, error) {
		cancel()
		return got.Write(p)
	})
	if n, err := b.streamer().ReadFileTo(ctx, b.at("large"), sink, b.user); !errors.Is(err, context.Canceled) || n == 32<<20 {
		b.Errorf("%d bytes, %v", n, err)
	}
}

func deadline(b *bench) {
	mark := marker()
	ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	r, err := b.s.Exec(ctx, sandbox.ExecSpec{Command: "sleep", Args: []string{mark}, Dir: b.dir, User: b.user})
	if !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("%+v %v", r, err)
	}
	b.none(mark)
}

// endsDuringAnyCall cancels calls at various moments: their answers must be true.
func endsDuringAnyCall(b *bench) {
	content := strings.Repeat("whole", 20_000)
	b.plant("file", content)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(b.ctx, time.Duration(i)*100*time.Microsecond)
			defer cancel()
			dir := b.at("dir-" + itoa(i))
			one := func(method string, err error, done bool) {
				switch {
				case err == nil && !done:
					b.Errorf("%s did nothing and says that it did", method)
				case err != nil && !errors.Is(err, context.DeadlineExceeded):
					b.Errorf("%s: %v", method, err)
				}
			}
			got, err := b.s.ReadFile(ctx, b.at("file"), b.user)
			one("ReadFile", err, string(got) == content)
			err = b.s.MkdirAll(ctx, dir+"/a/b", 0o755, b.user)
			_, there := b.s.Stat(b.ctx, dir+"/a/b", b.user)
			one("MkdirAll", err, there == nil)
			b.must2(b.s.MkdirAll(b.ctx, dir, 0o755, b.user))
			err = b.s.WriteFile(ctx, dir+"/file", []byte(content), 0o644, b.user)
			got, there = b.s.ReadFile(b.ctx, dir+"/file", b.user)
			one("WriteFile", err, string(got) == content)
			if there == nil && string(got) != content {
				b.Errorf("WriteFile left %d bytes", len(got))
			}
			list, err := b.s.ReadDir(ctx, b.dir, b.user)
			one("ReadDir", err, len(list) > 0)
			r, err := b.s.Exec(ctx, b.line("echo done"))
			one("Exec", err, err != nil || r.Stdout == "done\n")
			err = b.s.RemoveAll(ctx, dir, b.user)
			_, there = b.s.Stat(b.ctx, dir, b.user)
			one("RemoveAll", err, errors.Is(there, fs.ErrNotExist))
		})
	}
	all.Wait()
}
