package view

import (
	"fmt"

	"secbox/audit"
	"secbox/console/ui"
)

// ShownConnections is how many connections the page of an exec shows.
const ShownConnections = 100

// connEnds are the ends of connections for readers.
var connEnds = map[audit.ConnEnd]string{
	"":                  "open",
	audit.ConnClosed:    "closed",
	audit.ConnIdle:      "closed: no traffic",
	audit.ConnMaxBytes:  "ended: the limit of bytes",
	audit.ConnExecEnded: "ended with the exec",
	audit.ConnFailed:    "failed",
	audit.ConnLost:      "lost with its node",

	audit.ConnNotAllowed: "refused: not allowed",
	audit.ConnAddress:    "refused: its address",
	audit.ConnUnresolved: "refused: no address",
	audit.ConnName:       "refused: no name",
	audit.ConnProtocol:   "refused: its protocol",
	audit.ConnMismatch:   "refused: another host",
	audit.ConnLimit:      "refused: a limit",
}

// connEnd is how a connection ended.
func connEnd(c audit.Connection) string {
	if text, ok := connEnds[c.End]; ok {
		return text
	}
	return string(c.End)
}

// connTarget is what a connection was asked for.
func connTarget(c audit.Connection) string {
	if c.Host == "" {
		return "no host"
	}
	return fmt.Sprintf("%s port %d", c.Host, c.Port)
}

// traffic sums up the connections of an exec that has ended.
func traffic(r audit.Record) string {
	if !r.Status.Final() {
		return "The bytes of a connection are known when it has ended."
	}
	return fmt.Sprintf("%s asked for, %s refused; %s out, %s in.", ui.Count(r.NetConnections), ui.Count(r.NetDenied),
		ui.Bytes(r.NetBytesOut), ui.Bytes(r.NetBytesIn))
}

// more says how many connections the page leaves out.
func moreConnections(p ExecPage) string {
	if len(p.Network) < ShownConnections {
		return ""
	}
	return fmt.Sprintf("The first %d are shown; GET /sandbox/execs/{id}/connections has the first %s.", ShownConnections,
		ui.Count(audit.MaxConnections))
}
