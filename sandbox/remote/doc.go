// Package remote is core-api's side of the links that runners dial: a Sandbox whose files and
// commands are on the users' own machines. Package wire defines the messages, package machine is
// the runner's side. The package must not know tokens beyond their ids, nor audit rows: Config.Late
// takes the results of commands whose callers have left.
//
// A Hub knows a runner, by user and name, as a machine for as long as one process of the runner
// lives (its session). Links come and go within a session. A request belongs to a machine: it waits
// for permits, is queued on a link, sent, and done. Once it is sent, only the runner knows its
// outcome. While the runner is disconnected, the machine waits for the same session to return, for
// Config.Grace; then the outcome is unknown (fault.OutcomeUnknown), or for reads, the runner is
// offline.
//
// The reader of a link never blocks on a caller, so that a slow caller does not delay the others:
// output that its writer has not taken is kept in memory up to a bound and then in a file, at most
// as much as the spec lets the command give back. Large content may wait for its caller: it has a
// separate connection.
package remote
