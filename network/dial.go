package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"secbox/audit"
	"secbox/internal/whole"
	"secbox/policy"
)

// target is a host and port that a job asks for.
type target struct {
	name string     // as policy.HostName returns it; empty: addr counts
	addr netip.Addr // of a literal address
	port uint16
}

// host is the name or the address.
func (t target) host() string {
	if t.name != "" {
		return t.name
	}
	return t.addr.String()
}

func (t target) String() string { return net.JoinHostPort(t.host(), strconv.Itoa(int(t.port))) }

// parseTarget parses a host as the protocols have it, without brackets.
func parseTarget(host string, port uint16) (target, bool) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return target{addr: addr.Unmap(), port: port}, addr.Zone() == "" && port > 0
	}
	name, ok := policy.HostName(host)
	return target{name: name, port: port}, ok && port > 0
}

// refusal is why a job does not get a connection. The sentence is for the job.
type refusal struct {
	end      audit.ConnEnd
	sentence string
}

func (r *refusal) Error() string { return r.sentence }

func refuse(end audit.ConnEnd, format string, args ...any) *refusal {
	return &refusal{end, fmt.Sprintf(format, args...)}
}

// Timeouts of a connection's beginning.
const (
	lookupTimeout = 10 * time.Second
	dialTimeout   = 10 * time.Second // of each address
	maxDialed     = 4                // addresses of a name
)

// link is a connection to a host that is on record. It counts the bytes, and ends the connection
// at the limits.
type link struct {
	net.Conn
	way    *Way
	active atomic.Int64 // when a byte was carried, in Unix nanoseconds
	out    atomic.Int64
	in     atomic.Int64
	broken atomic.Pointer[string] // what the host did

	mu    sync.Mutex
	row   audit.Connection
	ended bool
}

// connect decides about a connection, puts it on record, and dials.
func (w *Way) connect(ctx context.Context, protocol audit.Protocol, host string, port uint16) (*link, *refusal) {
	t, valid := parseTarget(host, port)
	row := audit.Connection{
		ExecID: w.exec.ID, Protocol: protocol, Host: cut(strings.ToLower(host)), Port: int64(port), StartedAt: w.network.cfg.Now(),
	}
	if valid {
		row.Host = t.host()
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, refuse(audit.ConnExecEnded, "the exec has ended")
	}
	w.connecting.Add(1)
	defer w.connecting.Done()
	w.asked++
	row.Seq = w.asked
	nth := w.asked - w.visited
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	l, r := w.open(ctx, &row, nth, t, valid)
	if r != nil {
		row.EndedAt, row.End, row.Detail = w.network.cfg.Now(), r.end, r.sentence
		w.recorder.save(row, !row.Allowed)
		return nil, r
	}
	return l, nil
}

// open is connect without the record of a refusal, for the nth connection of the job.
func (w *Way) open(ctx context.Context, row *audit.Connection, nth int64, t target, valid bool) (*link, *refusal) {
	if !valid {
		return nil, refuse(audit.ConnName, "%q is neither a host name nor an address", whole.Shorten(row.Host))
	}
	if row.Rule = w.rule(t); row.Rule == "" {
		return nil, refuse(audit.ConnNotAllowed, "%s is not allowed by net.allow of this exec's policy", t)
	}
	if entries := w.credentials(t); len(entries) > 0 {
		if _, r := w.values(ctx, t, entries); r != nil {
			return nil, r
		}
		if row.Seq > audit.MaxConnections {
			return nil, refuse(audit.ConnLimit, "this exec has asked for %d connections; further ones have no row on record, and secrets are "+
				"only sent on record", audit.MaxConnections)
		}
	}
	if nth > w.exec.Limits.NetMaxConnections {
		return nil, refuse(audit.ConnLimit, "this exec has asked for %d connections, the net.max_connections of its policy",
			w.exec.Limits.NetMaxConnections)
	}
	if w.out.Load() >= w.exec.Limits.NetMaxBytes || w.in.Load() >= w.exec.Limits.NetMaxBytes {
		return nil, refuse(audit.ConnMaxBytes, "the connections of this exec have carried the net.max_bytes of its policy")
	}
	addresses, r := w.resolve(ctx, t)
	if r != nil {
		return nil, r
	}
	l := &link{way: w}
	if r = w.enter(l); r != nil {
		w.requests.CloseIdleConnections()
		r = w.enter(l)
	}
	if r != nil {
		return nil, r
	}
	row.Allowed, row.Address = true, addresses[0].String()
	l.row = *row
	if err := w.recorder.open(ctx, *row); err != nil {
		w.leave(l)
		row.Allowed, row.Address = false, ""
		return nil, refuse(audit.ConnFailed, "the connection could not be put on record, so it was not made; try again")
	}
	conn, address, err := w.dial(ctx, addresses, t.port)
	if err != nil {
		w.leave(l)
		return nil, refuse(audit.ConnFailed, "%s cannot be reached: %s", t, reason(err))
	}
	l.active.Store(time.Now().UnixNano())
	l.mu.Lock()
	l.Conn = conn
	l.row.Address = address.String()
	l.mu.Unlock()
	return l, nil
}

// rule returns the rule that allows a target; "" if none does.
func (w *Way) rule(t target) string {
	for _, rule := range w.rules {
		if rule.Allows(t.name, t.addr, t.port) {
			return rule.String()
		}
	}
	return ""
}

// enter takes the places of a connection.
func (w *Way) enter(l *link) *refusal {
	limit := w.network.enter(w.exec.Token)
	w.mu.Lock()
	defer w.mu.Unlock()
	if limit == "" && int64(len(w.links)) >= w.exec.Limits.NetConnections {
		w.network.leave(w.exec.Token)
		limit = fmt.Sprintf("this exec has %d connections at once, the net.connections of its policy", w.exec.Limits.NetConnections)
	}
	if limit != "" {
		return refuse(audit.ConnLimit, "%s", limit)
	}
	w.links[l] = true
	return nil
}

func (w *Way) leave(l *link) {
	w.mu.Lock()
	delete(w.links, l)
	w.mu.Unlock()
	w.network.leave(w.exec.Token)
}

// resolve returns the addresses that may be dialed; at least one without a refusal.
func (w *Way) resolve(ctx context.Context, t target) ([]netip.Addr, *refusal) {
	addresses := []netip.Addr{t.addr}
	if t.name != "" {
		limited, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		var err error
		if addresses, err = w.network.cfg.Lookup(limited, t.name); err != nil || len(addresses) == 0 {
			return nil, refuse(audit.ConnUnresolved, "%s has no address, or the name server did not answer", t.name)
		}
	}
	var good []netip.Addr
	why := ""
	for _, addr := range addresses {
		addr = addr.Unmap()
		if bad := w.network.refused(addr); bad != "" {
			why = addr.String() + " " + bad
			continue
		}
		if good = append(good, addr); len(good) == maxDialed {
			break
		}
	}
	if len(good) == 0 {
		return nil, refuse(audit.ConnAddress, "%s: %s, and jobs may not reach these (the setting sandbox.net.private names networks that they may)",
			t.host(), why)
	}
	return good, nil
}

// dial dials the addresses one after the other.
func (w *Way) dial(ctx context.Context, addresses []netip.Addr, port uint16) (conn net.Conn, address netip.Addr, err error) {
	for _, address = range addresses {
		limited, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err = w.network.cfg.Dial(limited, netip.AddrPortFrom(address, port))
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return conn, address, err
}

// reason is the end of a network error's text, without addresses.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	return whole.Shorten(err.Error())
}

// cut shortens a host for the record.
func cut(host string) string {
	if len(host) > audit.MaxHost {
		host = host[:audit.MaxHost]
	}
	return strings.ToValidUTF8(host, "?")
}

var errMaxBytes = errors.New("net.max_bytes of the exec's policy is reached")

// Read counts the bytes from the host.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.active.Store(time.Now().UnixNano())
		over := min(int64(n), l.way.in.Add(int64(n))-l.way.exec.Limits.NetMaxBytes)
		if over > 0 {
			n -= int(over)
			l.way.in.Add(-over)
		}
		l.in.Add(int64(n))
		if over > 0 {
			l.finish(audit.ConnMaxBytes, errMaxBytes.Error())
			return n, errMaxBytes
		}
	}
	l.note(err)
	return n, err
}

// Write counts the bytes to the host.
func (l *link) Write(p []byte) (int, error) {
	size := int64(len(p))
	over := l.way.out.Add(size) - l.way.exec.Limits.NetMaxBytes
	part := p[:size-min(size, max(0, over))]
	n, err := l.Conn.Write(part)
	l.way.out.Add(int64(n) - size)
	if n > 0 {
		l.active.Store(time.Now().UnixNano())
		l.out.Add(int64(n))
	}
	if err == nil && len(part) < len(p) {
		l.finish(audit.ConnMaxBytes, errMaxBytes.Error())
		return n, errMaxBytes
	}
	l.note(err)
	return n, err
}

// note keeps what the host did, for the record.
func (l *link) note(err error) {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return
	}
	l.broken.CompareAndSwap(nil, new("the connection broke off: "+reason(err)))
}

// Close ends the connection.
func (l *link) Close() error {
	if broken := l.broken.Load(); broken != nil {
		l.finish(audit.ConnFailed, *broken)
	} else {
		l.finish(audit.ConnClosed, "")
	}
	return nil
}

// CloseWrite ends the direction to the host.
func (l *link) CloseWrite() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// finish ends the connection and its row. The first end counts.
func (l *link) finish(end audit.ConnEnd, detail string) {
	l.mu.Lock()
	if l.ended || l.Conn == nil {
		l.mu.Unlock()
		return
	}
	l.ended = true
	_ = l.Conn.Close()
	l.row.EndedAt, l.row.End, l.row.Detail = l.way.network.cfg.Now(), end, detail
	l.row.BytesOut, l.row.BytesIn = l.out.Load(), l.in.Load()
	l.row.Allowed = end != audit.ConnMismatch && end != audit.ConnProtocol
	row := l.row
	l.mu.Unlock()
	l.way.leave(l)
	l.way.recorder.save(row, !row.Allowed)
}
