// Package internal holds small packages that several rooms use and no user knows. It has no code of
// its own. Each is read alone:
//
//   - admission: limits how many callers work and wait, with turns for clients
//   - quota: limits the rows that a client may cause, and counts the rest
//   - statedir: the private directory of a node, locked by one process
//   - lockfile: locks on open files against other processes
//   - traces: W3C Trace Context, and the stages of a request as spans
//   - traces/otlp: exports spans to a collector; only server imports it
//   - traces/otlp/otlptest: only tests: a collector
//   - cmdline: runs the command lines of core-api and secbox
//   - cmdline/cmdlinetest: only tests: checks every command of a program
//   - suggest: the word that a user may have meant
//   - names: shows paths that are not UTF-8 as text
//   - whole: cuts texts between characters
//   - icon: the icon of the product for browsers
//   - publicip: tells addresses of the internet's hosts from others
//   - buildinfo: what a program was built from
//
// The room must not know any other room but fault.
package internal
