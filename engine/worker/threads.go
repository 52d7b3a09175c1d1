//go:build linux

package worker

import (
	"runtime"
	"sync"
)

// PrepareThreads makes threads while there is nobody yet who could use up the container's pids: the Go runtime ends a process to
// which the kernel gives no thread, so a fork bomb would take whoever reports about it down. The runtime keeps threads that it does
// not use at the moment.
func PrepareThreads(processors, threads int) {
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
