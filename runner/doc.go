// Package runner runs one exec from request to closed row: it admits the request, asks policy for a
// snapshot and workspace for directories, opens the audit row, has the engine run the job while it
// captures the output into the state dir, has workspace collect and publish the artifacts, and
// closes the row. A job without a row does not run, and no answer is sent before the row is closed
// durably or its result is in the spool.
//
// Start with exec.go, the life of an exec told in order, then run.go, validate.go and async.go.
// Then read:
//
//   - session: containers that stay for several execs, and interpreters in them
//   - lifecycle: a command from its open row to its closed one; also for sandbox/record
//   - output: keeps the output of commands while they run, and wakes its readers
//   - terminal: keeps the terminals of execs while they run, and records them
//   - follow: one reader of an exec's row and output for all who follow it
//   - inputstore: keeps the contents of inputs by digest, for replays and downloads
//   - diskwatch: kills the jobs that fill the workspace's disk
//   - jobs: takes asynchronous execs from the database when this node has a free place
//   - webhooks: tells clients' services that execs have ended; api.CallbackBody makes the body
//
// The room must not know HTTP routes or SQL, and never starts docker itself.
package runner
