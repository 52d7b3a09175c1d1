//go:build linux

package worker

import (
	"runtime"
	"sync"
)

// PrepareThreads makes threads before a job can use up the container's pids: the Go runtime ends a
// process when the kernel refuses a thread, so a fork bomb would end the process that reports about
// it. The runtime keeps idle threads.
func PrepareThreads(processors, threads int) {
	runtime.GOMAXPROCS(processors)
	var there sync.WaitGroup
	there.Add(threads)
	var gone sync.WaitGroup
	for range threads {
		gone.Go(func() {
			runtime.LockOSThread() // so that each goroutine needs a thread while it waits
			defer runtime.UnlockOSThread()
			there.Done()
			there.Wait()
		})
	}
	gone.Wait()
}
