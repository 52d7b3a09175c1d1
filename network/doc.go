// Package network carries the connections of jobs whose policy lets them reach some hosts. A
// container has no network: sandbox-init passes on what arrives at a port of its loopback, as
// frames of the container's lease. This package speaks the proxy protocols with the job, decides by
// name, port and address, dials, and puts each connection on record.
//
// Read it in this order:
//
//	network.go  what all execs share: limits, the refused addresses
//	way.go      the way out of one exec: its limits, its connections
//	dial.go     a connection: decided, on record, dialed
//	address.go  the addresses that no job may reach
//	http.go     the HTTP proxy
//	socks.go    SOCKS5
//	tunnel.go   what goes through a tunnel, and must name the host that was asked for
//	credentials.go  secrets that are added to requests
//	authority.go    the certificates for the hosts of secrets
//	recorder.go writes the rows
//	visit.go    the way in: uses of a port of a session, on record
//
// Its package:
//
//   - secrets: reads the values of secrets
//
// It must not know containers or engines: it gets a net.Conn for each connection of a job.
package network
