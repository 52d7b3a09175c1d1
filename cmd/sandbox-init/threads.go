//go:build linux

package main

import "secbox/engine/worker"

const (
	processors = 2 // more would be useless: init only passes bytes on. Each may need a thread
	// threads is the largest number that init needs: one blocked in wait4, one reading frames,
	// three at the job's pipes, one in the poller, one that looks for unlinked files, one per
	// processor.
	threads = 7 + processors
)

func prepareThreads() { worker.PrepareThreads(processors, threads) }
