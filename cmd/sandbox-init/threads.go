//go:build linux

package main

import (
	"runtime"
	"sync"
)

const (
	processors = 2 // init only passes bytes on, so more would be of no use; each may want a thread of its own
	// threads are what init needs at most: one blocked in wait4, one reading frames, three at the job's pipes, one in the poller, one
	// per processor.
	threads = 6 + processors
)

// prepareThreads makes the threads while there is nobody yet who could use up the container's pids: the Go runtime ends a process to
// which the kernel gives no thread, so a fork bomb would take init, and with it the report, down. The runtime keeps threads that it does
// not use at the moment.
func prepareThreads() {
	runtime.GOMAXPROCS(processors)
	var there sync.WaitGroup
	there.Add(threads)
	var gone sync.WaitGroup
	for range threads {
		gone.Go(func() {
			runtime.LockOSThread() // so that waiting keeps a thread waiting
			defer runtime.UnlockOSThread()
			there.Done()
			there.Wait()
		})
	}
	gone.Wait()
}
