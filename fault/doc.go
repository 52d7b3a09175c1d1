// Package fault defines the error codes of all packages of secbox.
//
// A code is part of the public contract: clients switch on it, so a code is never renamed and never
// changes its meaning. The message is for people and names the remedy, if there is one. The cause
// (Err) is for the log and never leaves the process.
//
// Read codes.go (the codes with their HTTP status and exit code), then fault.go (the error type).
//
// The package must not know HTTP handlers, Docker or databases, and imports no other room.
package fault
