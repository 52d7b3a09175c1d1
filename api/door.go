package api

import (
	"context"
	"net"
	"net/http"
	"strings"

	"secbox/access/tokens"
	"secbox/api/inflight"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/report"
)

// Console answers the requests for /console and below: web pages, whose callers it identifies
// itself. door is what it asks this server.
type Console func(w http.ResponseWriter, r *http.Request, door Door)

const consolePath = "/console"

// ofConsole reports whether a path is one of the console.
func ofConsole(path string) bool {
	return path == consolePath || strings.HasPrefix(path, consolePath+"/")
}

// towardsConsole reports whether a path is one of the console, or the one that leads browsers
// there.
func towardsConsole(path string) bool { return path == "/" || ofConsole(path) }

// withConsole passes the requests for pages to the console.
func (s *Server) withConsole(next http.Handler) http.Handler {
	if s.cfg.Console == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ofConsole(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		s.cfg.Console(w, r, Door{s, callFrom(r.Context())})
	})
}

// Door applies the gate's checks to a request for a console page, as gateOf does for a route of the
// API: the caller's limits, the log and the metrics. A Door belongs to one request.
type Door struct {
	server *Server
	call   *call
}

// WithoutToken returns the caller of a request that needs no token; see gate.Gate.
func (d Door) WithoutToken(r *http.Request) (tokens.Token, error) {
	return d.server.gate.WithoutToken(r)
}

// ClientAddress returns the address of the client, without its port.
func (d Door) ClientAddress(r *http.Request) string {
	address := d.server.gate.ClientAddress(r)
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Secure reports whether the browser reaches this server by TLS.
func (d Door) Secure(r *http.Request) bool { return d.server.secure(d.call, r) }

// Away returns the node that runs the command of an exec, or has it in its queue, if that is
// another one; empty: none. reachable is set if it can be asked.
func (d Door) Away(ctx context.Context, rec audit.Record) (nodeID string, reachable bool) {
	nodeID = d.server.away(d.call, rec)
	return nodeID, nodeID != "" && d.server.cfg.Peers.Reaches(ctx, nodeID)
}

// Forward answers a request, after Enter, with the answer of another node: fault.NodeUnreachable.
func (d Door) Forward(w http.ResponseWriter, r *http.Request, nodeID string) error {
	return d.server.forward(d.call, w, r, nodeID)
}

// Relay resumes an event stream from another node after the given event id. The caller has sent the
// header. passed reports whether the other node sent any part of the stream.
func (d Door) Relay(w http.ResponseWriter, r *http.Request, nodeID, lastEventID string) (passed bool) {
	return d.server.relay(d.call, w, r, nodeID, lastEventID)
}

// Enter counts a request against the limits of its caller until leave is called: fault.ServerBusy.
// valid is called while the answer is sent.
func (d Door) Enter(w http.ResponseWriter, r *http.Request, route string, caller tokens.Token, valid func() error) (http.ResponseWriter,
	*http.Request, func(), error,
) {
	s, rest := d.server, d.server.cfg.Bounds.Rest
	d.call.route, d.call.caller = route, caller
	var err error
	if d.call.memory, err = s.memory.Enter(caller.ID, 0); err != nil {
		return nil, nil, nil, err
	}
	if caller.ID != "" {
		r = r.WithContext(admin.By(r.Context(), admin.Caller(caller.ID, caller.Name)))
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = inflight.NewBody(w, r, d.call.memory, valid, false, rest)
	}
	return inflight.NewWriter(w, d.call.memory, valid, rest), r, d.call.memory.Leave, nil
}

// Turn waits until it is the caller's turn to have an answer made, after Enter. The caller of Turn
// must call leave before the answer is sent: fault.ServerBusy.
func (d Door) Turn(ctx context.Context) (leave func(), err error) {
	return d.server.turns.Enter(ctx, d.call.caller.ID)
}

// Reserve counts bytes of memory before they are used, after Enter: fault.ServerBusy.
func (d Door) Reserve(bytes int64) error { return d.call.reserve(bytes) }

// Export answers a request with all records that match, after Enter, as ExportAudit does and within
// the same bounds: fault.ServerBusy.
func (d Door) Export(w http.ResponseWriter, r *http.Request, q export.Query) error {
	return d.server.sendExport(w, r, d.call, q)
}

// ExportReport answers a request with the bundle of a report, after Enter, within the bounds of
// exports: fault.ServerBusy.
func (d Door) ExportReport(w http.ResponseWriter, r *http.Request, span report.Span) error {
	return d.server.sendReport(w, r, d.call, span)
}

// Skills returns what callers may read of skills, after Enter, within the limits of the API.
// Looking at them changes nothing.
func (d Door) Skills() visible.Skills {
	seen := d.server.skills
	seen.Library = seen.View
	return seen
}
