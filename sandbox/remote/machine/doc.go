// Package machine is the runner's side of a link: it serves the sandbox interface on a user's own machine to a core-api that it dials, so
// that it works from behind any router and opens no port. `secbox runner` is nothing but this package with flags.
//
// What core-api asks is not believed. Paths are confined here, by package sandbox/files, whatever was checked before; what Config.Allow does
// not grant is refused; everything that waits or is kept has a bound. A command is not confined: it runs as the user who started the runner,
// and that is what granting "exec" means.
//
// # What lasts, and what does not
//
// A Machine is one session (see package wire). It holds a journal of the requests that it has taken, which outlives links; a link sends what
// the journal has ready, in turns, and is given up when nothing was heard for three heartbeats. When the Machine ends, so does every
// command; when its process is killed, its commands die with it (package sandbox/process).
package machine
