//go:build linux

package main

import (
	"bufio"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

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
	var rehearsing rehearsal
	t, payload, err := frames.Next()
	for err == nil && t == initproto.TypeRehearse {
		rehearsing.begin()
		t, payload, err = frames.Next()
	}
	rehearsing.end()
	before := readCounters()
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

	j, err := start(spec, l)
	if err != nil {
		if l.sendExit(initproto.Exit{Code: startCode(err), StartError: err.Error()}) != nil {
			return exitLease
		}
		return exitDone
	}
	// From here on the stream is read by its own goroutine until the process ends: its end is the end of everything.
	var reported atomic.Bool
	go func() {
		code := j.obey(frames)
		if reported.Load() {
			code = exitDone
		}
		killAll()
		os.Exit(code)
	}()
	exit := j.wait()
	counted := readCounters().since(before)
	exit.OOMKills, exit.PIDsMax = counted.oomKills, counted.pidsMax
	reported.Store(true)
	if l.sendExit(exit) != nil {
		return exitLease
	}
	// The end of this process makes the engine take the container down, which costs the machine more than the job did. Whoever waits
	// for the answer has it first: he ends the lease when he has sent it.
	time.Sleep(lingering)
	return exitDone
}

// lingering is for how long init waits, after its report, for its lease to end: far longer than core-api takes for an answer, and short
// enough that nobody's memory is held for nothing.
const lingering = 2 * time.Second

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
		case initproto.TypeRehearse: // it crossed the job on its way
		default:
			return exitProtocol
		}
	}
}
