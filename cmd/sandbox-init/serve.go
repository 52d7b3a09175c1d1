//go:build linux

package main

import (
	"bufio"
	"io"
	"os"
	"sync/atomic"
	"time"

	"secbox/engine/initproto"
	"secbox/engine/worker"
)

// serve says hello, takes one job, runs it and reports; it returns init's exit code. With
// MagicFiles, it takes files, too.
func serve(in io.Reader, out io.Writer, hello string) int {
	l := worker.NewLink(out)
	if err := l.Send(initproto.TypeHello, []byte(hello)); err != nil {
		return exitLease
	}
	buffered := bufio.NewReaderSize(in, initproto.MaxChunk)
	frames := initproto.NewReader(buffered, initproto.ToInit)
	var rehearsing rehearsal
	t, payload, err := frames.Next()
	for asked := false; err == nil && t == initproto.TypeRehearse; asked = true {
		if !asked {
			rehearsing.begin()
		} else if l.Send(initproto.TypeReady, nil) != nil {
			return exitLease
		}
		t, payload, err = frames.Next()
	}
	rehearsing.end()
	if err == nil && t == initproto.TypeServe {
		return serveMany(buffered, out, initproto.MagicServe)
	}
	var dirs *files
	if err == nil && t == initproto.TypeFiles && hello == initproto.MagicFiles {
		if dirs, err = takeFiles(payload, frames); err == nil {
			t, payload, err = frames.Next()
		}
	}
	cgroup := openCounters()
	before := cgroup.read()
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

	if err := dirs.ready(spec); err != nil {
		if l.SendExit(worker.Refusal(err)) != nil {
			return exitLease
		}
		return exitDone
	}
	var used *meters
	if spec.ReportUsage {
		used = openMeters()
	}
	way, err := openNetwork(&spec, func(chunk []byte) error { return l.Send(initproto.TypeNetwork, chunk) })
	if err != nil {
		if l.SendExit(worker.Refusal(err)) != nil {
			return exitLease
		}
		return exitDone
	}
	way.begin()
	j, err := worker.Start(spec, l, worker.Options{Alone: true, OfferToOOM: true})
	if err != nil {
		if l.SendExit(worker.Refusal(err)) != nil {
			return exitLease
		}
		return exitDone
	}
	// From here on a goroutine reads the stream until the process ends. The end of the stream kills
	// all processes.
	var reported atomic.Bool
	go func() {
		code := handleFrames(j, way, frames)
		if reported.Load() {
			code = exitDone
		}
		worker.KillAll()
		os.Exit(code)
	}()
	var reporting reports
	if spec.ReportUnlinked {
		go newOpenFiles(execDirs, nil).watch(func(now initproto.Unlinked, due bool) (more bool) {
			return reporting.send(func() {
				if due {
					_ = l.SendJSON(initproto.TypeUnlinked, now)
				}
			})
		})
	}
	if used != nil {
		go used.watch(func(now initproto.Usage) (more bool) {
			return reporting.send(func() { _ = l.SendJSON(initproto.TypeUsage, now) })
		})
	}
	exit := j.Wait()
	way.close()
	reporting.stop()
	counted := cgroup.read().since(before)
	exit.OOMKills, exit.PIDsMax = counted.oomKills, counted.pidsMax
	if dirs.sendChanges(l, spec) != nil {
		return exitLease
	}
	reported.Store(true)
	if l.SendExit(exit) != nil {
		return exitLease
	}
	// When this process ends, the engine removes the container, which costs more CPU time than most
	// jobs. So it waits until core-api has sent the answer and ends the lease.
	time.Sleep(lingering)
	return exitDone
}

// lingering is how long init waits for the end of its lease after its report: far longer than
// core-api needs for an answer, and short enough not to hold memory in vain.
const lingering = 2 * time.Second

// handleFrames handles frames while the job runs, and returns when the lease ends.
func handleFrames(j *worker.Command, way *network, frames *initproto.Reader) int {
	defer j.AbandonStdin()
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return exitLease
		}
		switch t {
		case initproto.TypeStdin:
			if !j.Push(payload) {
				return exitProtocol
			}
		case initproto.TypeStdinEnd:
			j.EndStdin()
		case initproto.TypeKill:
			j.Kill()
		case initproto.TypeNetwork:
			if way == nil || way.wire.Push(payload) != nil {
				return exitProtocol
			}
		case initproto.TypeRehearse: // it may follow the job
		default:
			return exitProtocol
		}
	}
}
