// Package remote is core-api's side of the links that runners dial (package wire has the language): a Sandbox whose files and commands are
// on the users' own machines. What the runner does with a request is package machine.
//
// A Hub knows a runner by its user and name as a machine, for as long as one process of the runner lives (its session): links come and go
// within it. A request belongs to a machine. It is waiting for a place, queued on a link, sent, and done; from sent on it is the runner's
// word that decides what has become of it, and while the runner is gone nobody's: the machine waits for the same session to come back for
// Config.Grace, and then says that it does not know (fault.OutcomeUnknown), or for what only reads, that the runner is offline.
//
// Nothing that a runner sends makes the reader of its link wait, so that a slow caller cannot stop the others: output that its writer does
// not take is kept in memory up to a bound and then in a file, and there is never more of it than the spec lets a command give back. Large
// content does wait for the caller; it has a connection of its own.
//
// The package knows nothing of tokens but their ids, and of audit rows but that Late wants to hear of what nobody waited for.
package remote
