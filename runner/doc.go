// Package runner runs one exec from request to closed row: it admits the request, asks policy for a snapshot and workspace for
// directories, opens the audit row, has the engine run the job while it captures the output into the state dir, has workspace collect
// and publish what came out, and closes the row.
//
// No row, no run; and no answer before the row is closed durably or its result is in the spool. The package knows no HTTP and no SQL,
// and never starts docker itself.
package runner
