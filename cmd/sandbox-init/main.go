//go:build linux

// Command sandbox-init is PID 1 in every sandbox container. It reads one job from its standard
// input, runs it, passes its output on in frames, kills the processes that are left, and reports
// how it ended (see engine/initproto). With --files, it also takes the job's files and sends back
// what the job has changed (engine/transfer).
//
// With --serve it is PID 1 of a long-lived container that runs many commands at once, each in a
// worker (engine/worker), which is this program with --worker. Commands may run it to search for
// files (sandbox/search), core-api has it run as a command for file operations (sandbox/inside),
// and jobs with a terminal run below it (initproto.TerminalVerb).
//
// It shares its uid with the job, so it must protect itself: it is not dumpable, so that the job
// cannot access its descriptors and memory; and every signal has its default disposition, because
// the kernel discards those for PID 1 when they are sent from within. It does not write to standard
// error, which has messages of the engine only.
package main

import (
	"bufio"
	"fmt"
	"os"

	"secbox/engine/initproto"
	"secbox/sandbox/inside"
	"secbox/sandbox/search"
)

// Exit codes of init. core-api ignores them; they appear in `docker events`.
const (
	exitDone     = 0
	exitLease    = 137 // the lease ended: our standard input closed
	exitProtocol = 2
	exitNotInit  = 3
)

// The roles of the program other than init of one job.
const (
	serveFlag  = "--serve"
	workerFlag = "--worker"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(initproto.Magic, initproto.MagicServe)
		return
	}
	search.Main()
	inside.Main()
	if len(os.Args) > 1 && os.Args[1] == workerFlag {
		os.Exit(runWorker())
	}
	if len(os.Args) > 3 && os.Args[1] == initproto.TerminalVerb {
		os.Exit(runTerminal(os.Args[2], os.Args[3:]))
	}
	// KillAll is kill(-1); in the host's PID namespace it would kill all processes of the machine.
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "sandbox-init: runs only as the first process of a container")
		os.Exit(exitNotInit)
	}
	if err := harden(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-init:", err)
		os.Exit(exitNotInit)
	}
	if len(os.Args) > 1 && os.Args[1] == initproto.PodFlag {
		if err := startInPod(os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox-init:", err)
			os.Exit(exitNotInit)
		}
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	if len(os.Args) > 1 && os.Args[1] == serveFlag {
		hello := initproto.MagicServe1
		if len(os.Args) > 2 && os.Args[2] == initproto.ServeVersion {
			hello = initproto.MagicServe
		}
		os.Exit(serveMany(bufio.NewReaderSize(os.Stdin, initproto.MaxChunk), os.Stdout, hello))
	}
	prepareThreads()
	hello := initproto.Magic
	if len(os.Args) > 1 && os.Args[1] == initproto.FilesArg {
		hello = initproto.MagicFiles
	}
	os.Exit(serve(os.Stdin, os.Stdout, hello))
}
