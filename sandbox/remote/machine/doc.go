// Package machine is the runner's side of a link: it serves the sandbox interface on a user's own
// machine to a core-api that it dials, so that it works behind any router and opens no port.
// `secbox runner` adds only flags. The package must not know core-api's side of the link.
//
// A runner does not trust core-api. Package sandbox/files confines paths here, even if core-api has
// checked them; requests beyond Config.Allow are refused; everything that waits or is kept has a
// bound. Commands are not confined: they run as the user who started the runner, which is the
// meaning of granting "exec".
//
// A Machine is one session (see package wire). Its journal of requests outlives links; a link sends
// the messages that the journal has ready, and is closed when nothing was heard for three
// heartbeats. When the Machine ends, it kills its commands; when its process is killed, its
// commands die too (see package sandbox/process).
package machine
