package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// Connection is a connection that a job made or tried to make through the proxy in its container.
// With ProtocolUnknown, the job has sent something else to the proxy, and there is no Host.
// With ProtocolPort, it is a visit: what one caller did with one port of a session, until a minute
// without a request. Host is the caller's token, Rule the link that the token has made, if the
// visit is by one, and Address the client's. Times are UTC with microseconds.
type Connection struct {
	ExecID   string   `json:"exec_id"`
	Seq      int64    `json:"seq"`      // from 1, in the order in which they were asked for
	Protocol Protocol `json:"protocol"` // how the job asked
	Host     string   `json:"host"`     // the name or address that was asked for, in lower case, at most MaxHost bytes
	Port     int64    `json:"port"`
	Address  string   `json:"address"`   // that was dialed; empty: none was
	Allowed  bool     `json:"allowed"`   // core-api dialed it
	Rule     string   `json:"rule"`      // of net.allow that allows it; empty: none does
	Secrets  []string `json:"secrets"`   // names of the secrets that were added to its requests; never values
	BytesOut int64    `json:"bytes_out"` // from the job to the host
	BytesIn  int64    `json:"bytes_in"`
	// StartedAt is when the job asked for it.
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"` // zero: it is open
	End       ConnEnd   `json:"end"`               // empty: it is open
	Detail    string    `json:"detail"`            // a sentence about the end; empty for ConnClosed
}

// MaxHost is the most bytes of Connection.Host: names have no more. Longer texts are cut.
const MaxHost = 253

// Protocol is how a job asks for a connection. The list is closed.
type Protocol string

// The protocols.
const (
	ProtocolConnect Protocol = "connect" // a tunnel of an HTTP proxy
	ProtocolHTTP    Protocol = "http"    // a request to an HTTP proxy, or an HTTP request in a tunnel
	ProtocolSOCKS5  Protocol = "socks5"
	ProtocolPort    Protocol = "port"    // a visit to a port of a session
	ProtocolUnknown Protocol = "unknown" // neither
)

// ConnEnd is why a connection has ended. The list is closed.
type ConnEnd string

// The ends.
const (
	ConnClosed    ConnEnd = "closed"     // by the job or the host
	ConnIdle      ConnEnd = "idle"       // no traffic for net.idle_ms
	ConnMaxBytes  ConnEnd = "max_bytes"  // net.max_bytes was reached
	ConnExecEnded ConnEnd = "exec_ended" // with the exec
	ConnFailed    ConnEnd = "failed"     // the host could not be reached, or broke the connection off
	ConnLost      ConnEnd = "lost"       // the node of the exec ended

	// Of connections that were refused before anything was dialed, unless they say otherwise.
	ConnNotAllowed ConnEnd = "not_allowed" // no rule of net.allow allows the host and port
	ConnAddress    ConnEnd = "address"     // the name has only addresses that no job may reach
	ConnUnresolved ConnEnd = "unresolved"  // the name has no address
	ConnName       ConnEnd = "name"        // the host is neither a name nor an address
	ConnProtocol   ConnEnd = "protocol"    // the request is malformed or not supported; it may have been dialed
	ConnMismatch   ConnEnd = "mismatch"    // the connection's content names another host; dialed, and that was not sent
	ConnLimit      ConnEnd = "limit"       // a limit of connections, of the exec, the token or the node
)

// ConnEnds are all of them.
var ConnEnds = []ConnEnd{
	ConnClosed, ConnIdle, ConnMaxBytes, ConnExecEnded, ConnFailed, ConnLost, ConnNotAllowed, ConnAddress, ConnUnresolved, ConnName,
	ConnProtocol, ConnMismatch, ConnLimit,
}

// MaxConnections is how many connections of an exec have rows. Further ones are only counted.
const MaxConnections = 1000

// Traffic is what a record tells of the connections of its exec.
type Traffic struct {
	Connections int64  // that were asked for
	Denied      int64  // that were not allowed, of Connections
	BytesOut    int64  // of all
	BytesIn     int64  // of all
	Digest      string // of the rows, see RowDigests; empty: there are none
	Marks       string // the beginnings of the rows' own digests, to tell which one was changed

	Unstored []Connection // the rows that the database has not taken
}

// Set puts the traffic into a record.
func (t Traffic) Set(r *Record) {
	r.NetConnections, r.NetDenied, r.NetBytesOut, r.NetBytesIn = t.Connections, t.Denied, t.BytesOut, t.BytesIn
	r.NetDigest, r.NetMarks, r.Connections = t.Digest, t.Marks, t.Unstored
}

// TrafficOf sums up rows in the order of Seq.
func TrafficOf(rows []Connection) Traffic {
	t := Traffic{Connections: int64(len(rows))}
	t.Digest, t.Marks = RowDigests(rows)
	for _, c := range rows {
		if !c.Allowed {
			t.Denied++
		}
		t.BytesOut += c.BytesOut
		t.BytesIn += c.BytesIn
	}
	return t
}

// markDigits is how many hexadecimal digits of a row's digest are kept.
const markDigits = 8

// RowDigests returns the SHA-256 of the rows' JSON in the order of Seq, each followed by a newline,
// and the first eight digits of the SHA-256 of each row, both in hexadecimal; empty for no rows.
func RowDigests(rows []Connection) (digest, marks string) {
	if len(rows) == 0 {
		return "", ""
	}
	all := sha256.New()
	var first strings.Builder
	for _, c := range rows {
		c.Secrets = append([]string{}, c.Secrets...)
		c.StartedAt, c.EndedAt = c.StartedAt.UTC().Truncate(time.Microsecond), c.EndedAt.UTC().Truncate(time.Microsecond)
		line, _ := json.Marshal(c) // it has only texts, numbers and times
		line = append(line, '\n')
		all.Write(line)
		one := sha256.Sum256(line)
		first.WriteString(hex.EncodeToString(one[:])[:markDigits])
	}
	return hex.EncodeToString(all.Sum(nil)), first.String()
}

// ChangedRows returns the places, from 1, of the rows that differ between two lists of marks; at
// most limit. A row that one of the lists does not have differs.
func ChangedRows(a, b string, limit int) (places []int) {
	for i := 0; i < max(len(a), len(b)) && len(places) < limit; i += markDigits {
		mark := func(s string) string { return s[min(i, len(s)):min(i+markDigits, len(s))] }
		if mark(a) != mark(b) {
			places = append(places, i/markDigits+1)
		}
	}
	return places
}

// Connections stores the connections of execs. It is safe for concurrent use.
type Connections interface {
	// SaveConnections inserts rows, or replaces those with the same exec and seq, in one durable
	// transaction.
	SaveConnections(ctx context.Context, rows []Connection) error

	// Connections returns at most limit connections of an exec with a seq above after, in the order
	// of seq.
	Connections(ctx context.Context, execID string, after int64, limit int) ([]Connection, error)
}
