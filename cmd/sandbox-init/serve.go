//go:build linux

package main

import (
	"bufio"
	"io"
	"os"
	"sync"

	"secbox/engine/initproto"
)

// link is the stream to core-api. Frames are written whole, one at a time.
type link struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

func (l *link) send(t initproto.Type, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = initproto.Append(l.buf[:0], t, payload)
	_, err := l.w.Write(l.buf)
	return err
}

func (l *link) sendExit(e initproto.Exit) error {
	frame, err := initproto.AppendJSON(nil, initproto.TypeExit, e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(frame)
	return err
}

// serve says hello, takes one job, runs it and reports; it returns init's exit code.
func serve(in io.Reader, out io.Writer) int {
	l := &link{w: out}
	if err := l.send(initproto.TypeHello, []byte(initproto.Magic)); err != nil {
		return exitLease
	}
	frames := initproto.NewReader(bufio.NewReaderSize(in, initproto.MaxChunk), initproto.ToInit)
	t, payload, err := frames.Next()
	if err != nil {
		return exitLease
	}
	if t != initproto.TypeJob {
		return exitProtocol
	}
	spec, err := initproto.DecodeJob(payload)
	if err != nil {
		return exitProtocol
	}

	before := readCounters()
	j, err := start(spec, l)
	if err != nil {
		if l.sendExit(initproto.Exit{Code: startCode(err), StartError: err.Error()}) != nil {
			return exitLease
		}
		return exitDone
	}
	// From here on the stream is read by its own goroutine until the process ends: its end is the end of everything.
	go func() {
		code := j.obey(frames)
		killAll()
		os.Exit(code)
	}()
	exit := j.wait()
	counted := readCounters().since(before)
	exit.OOMKills, exit.PIDsMax = counted.oomKills, counted.pidsMax
	if l.sendExit(exit) != nil {
		return exitLease
	}
	return exitDone
}

// obey carries out what core-api sends while the job runs, and returns when the lease ends.
func (j *job) obey(frames *initproto.Reader) int {
	defer j.stdin.abandon()
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return exitLease
		}
		switch t {
		case initproto.TypeStdin:
			if !j.stdin.push(payload) {
				return exitProtocol
			}
		case initproto.TypeStdinEnd:
			j.stdin.end()
		case initproto.TypeKill:
			j.kill(causeKilled)
		default:
			return exitProtocol
		}
	}
}
