//go:build linux

package main

import "secbox/engine/worker"

const (
	processors = 2 // init only passes bytes on, so more would be of no use; each may want a thread of its own
	// threads are what init needs at most: one blocked in wait4, one reading frames, three at the job's pipes, one in the poller, one
	// that looks at open files, one per processor.
	threads = 7 + processors
)

func prepareThreads() { worker.PrepareThreads(processors, threads) }
