//go:build linux

// Command sandbox-init is PID 1 in every sandbox container. It reads one job from its standard input, runs it, passes its output on in
// frames, kills whatever is left, and reports how it ended (see engine/initproto).
//
// With --serve it is PID 1 of a container that lives for long and runs many commands at once, each by a worker (engine/worker), which is
// this program again, with --worker.
//
// It shares its uid with the job, so it defends itself: it is not dumpable, so that the job can neither read nor write its
// descriptors and memory; and every signal has its default disposition, because the kernel discards those when they are sent to PID 1
// from within. It never writes to standard error on purpose: there, only the engine speaks.
package main

import (
	"fmt"
	"os"

	"secbox/engine/initproto"
)

// Exit codes of init itself. Nobody reads them while frames arrive; they help whoever looks at `docker events`.
const (
	exitDone     = 0
	exitLease    = 137 // the lease ended: our standard input closed
	exitProtocol = 2
	exitNotInit  = 3
)

// What the program is told to be.
const (
	serveFlag  = "--serve"
	workerFlag = "--worker"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(initproto.Magic, initproto.MagicServe)
		return
	}
	if len(os.Args) > 1 && os.Args[1] == workerFlag {
		os.Exit(runWorker())
	}
	// Killing "everything" is kill(-1): outside a PID namespace of its own that would be the whole machine.
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "sandbox-init: runs only as the first process of a container")
		os.Exit(exitNotInit)
	}
	if err := harden(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-init:", err)
		os.Exit(exitNotInit)
	}
	if len(os.Args) > 1 && os.Args[1] == serveFlag {
		os.Exit(serveMany(os.Stdin, os.Stdout))
	}
	prepareThreads()
	os.Exit(serve(os.Stdin, os.Stdout))
}
