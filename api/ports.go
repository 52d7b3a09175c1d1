package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"secbox/access/tokens"
	"secbox/api/gate"
	"secbox/api/ports"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/runner"
	"secbox/runner/session"
)

// portLinkPath is the route that makes links. Its roles may use ports.
const portLinkPath = "/sandbox/sessions/{session_id}/ports/{port}/link"

// portAnswer is how long a server in a session may take until it sends the header of an answer.
const portAnswer = 2 * time.Minute

// clientHeader tells the node that runs a session the address of the client, which its record has.
const clientHeader = "Secbox-Client-Address"

// CreatePortLink makes a link to a port of a session, on record.
func (s *Server) CreatePortLink(ctx context.Context, in wire.CreatePortLinkRequestObject) (wire.CreatePortLinkResponseObject, error) {
	call := callFrom(ctx)
	port, ok := ports.ParsePort(in.Port)
	if !ok {
		return nil, fault.BadField("port", "must be a number from %d to %d", ports.MinPort, ports.MaxPort)
	}
	lifetime := ports.DefaultLifetime
	if seconds := in.Body.TTLSeconds; seconds != nil {
		if *seconds < 1 || *seconds > int64(ports.MaxLifetime/time.Second) {
			return nil, fault.BadField("ttl_seconds", "must be from 1 to %d", int64(ports.MaxLifetime/time.Second))
		}
		lifetime = time.Duration(*seconds) * time.Second
	}
	rec, err := s.session(ctx, in.SessionID)
	if err != nil {
		return nil, err
	}
	if err := gate.CheckProject(call.caller, rec.ProjectID, rec.ConversationID, rec.UserID); err != nil {
		return nil, err
	}
	if s.cfg.PreviewDomain == "" {
		return nil, fault.New(fault.Unsupported, "ports of sessions cannot be reached from outside here; the operator has to set sandbox.preview_domain")
	}
	if rec.Status.Final() {
		return nil, session.Ended(rec.ExecID)
	}
	link := ports.Link{
		Address: ports.Address{Session: rec.ExecID, Port: port}, ID: rand.Text(), Token: call.caller.ID,
		Expires: s.cfg.Now().Add(lifetime).UTC().Truncate(time.Second),
	}
	e, err := admin.New(ctx, admin.PortLinked, rec.ExecID, map[string]any{"port": port, "link": link.ID, "expires_at": link.Expires})
	if err != nil {
		return nil, err
	}
	if err := s.cfg.AdminEvents.Record(ctx, e); err != nil {
		return nil, err
	}
	host, scheme := s.domain().Host(link.Address), "http"
	if _, port, err := net.SplitHostPort(call.request.Host); err == nil {
		host = net.JoinHostPort(host, port)
	}
	if s.secure(call, call.request) {
		scheme = "https"
	}
	return wire.CreatePortLink201JSONResponse{
		URL: scheme + "://" + host + "/?" + ports.Param + "=" + link.Text(s.cfg.LinkKey), ExpiresAt: link.Expires,
	}, nil
}

func (s *Server) domain() ports.Domain { return ports.Domain(s.cfg.PreviewDomain) }

// withPorts answers requests to hosts of the preview domain, which no other handler gets.
func (s *Server) withPorts(next http.Handler) http.Handler {
	if s.cfg.PreviewDomain == "" {
		return next
	}
	proxy := ports.NewProxy(portAnswer)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, within, ok := s.domain().Find(r.Host)
		if !within {
			next.ServeHTTP(w, r)
			return
		}
		callFrom(r.Context()).route = "ports"
		err := s.arrived(r)
		if err == nil && !ok {
			err = fault.New(fault.ForeignHost, "the host %q is no port of a session; they are <port>-<session id>.%s, with a port from %d to %d",
				problem.Clip(r.Host), s.cfg.PreviewDomain, ports.MinPort, ports.MaxPort)
		}
		if err == nil {
			err = checkHeaders(r)
		}
		if err == nil && !strings.HasPrefix(r.URL.Path, "/") { // CONNECT, and OPTIONS *
			err = fault.New(fault.MethodNotAllowed, "ports of sessions take requests for paths only")
		}
		if err == nil {
			err = s.servePort(w, r, at, proxy)
		}
		if err != nil {
			problem.Write(w, r, fault.From(err))
		}
	})
}

// portAccess is why a request may use a port.
type portAccess struct {
	caller     tokens.Token
	link       ports.Link // zero: by the token itself
	byCookie   bool
	rawQuery   string // without the link
	keepBearer bool   // the header Authorization is the application's
}

// servePort answers a request to a port of a session. After an error, nothing was sent.
func (s *Server) servePort(w http.ResponseWriter, r *http.Request, at ports.Address, proxy *ports.Proxy) error {
	call := callFrom(r.Context())
	secure := s.secure(call, r)
	access, err := s.portAccess(r, at, secure)
	if err != nil {
		return err
	}
	call.caller = access.caller
	if access.byCookie && !s.domain().FromOwnPage(r, at, secure) {
		return fault.New(fault.ForeignOrigin, "the request comes from a page of another origin, which may not use this session's ports; open the link itself")
	}
	rec, err := s.session(r.Context(), at.Session)
	if err != nil {
		return err
	}
	if err := gate.CheckProject(access.caller, rec.ProjectID, rec.ConversationID, rec.UserID); err != nil {
		return err
	}
	if arrives := access.link.ID != "" && !access.byCookie; arrives && r.Header.Get("Upgrade") == "" &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead) {
		access.link.SetCookie(w, s.cfg.LinkKey, secure)
		w.Header().Set("Location", ports.Target(r.URL.EscapedPath(), access.rawQuery))
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	if rec.Status.Final() {
		return session.Ended(rec.ExecID)
	}
	if call.memory, err = s.memory.Enter(access.caller.ID, 0); err != nil {
		return err
	}
	defer call.memory.Leave()
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	go s.watchPort(ctx, r, access, end)
	r, w = r.WithContext(ctx), ports.Paced(ctx, w, ports.ClientPace)
	for _, name := range []string{"X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy", "Cross-Origin-Resource-Policy", "Cache-Control"} {
		w.Header().Del(name) // the application says
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the connection to the session has a limit
	client := Door{s, call}.ClientAddress(r)
	if call.peer != "" { // which knows the client
		client = cmp.Or(r.Header.Get(clientHeader), "node "+call.peer)
	}
	r.Header.Del(clientHeader)
	if node := s.away(call, rec); node != "" {
		r.Header.Set(clientHeader, client)
		err = s.forward(call, w, r, node)
	} else {
		if err := call.reserve(forwardPrice); err != nil {
			return err
		}
		visitor := runner.Visitor{Token: access.caller.ID, Link: access.link.ID, Address: client}
		err = proxy.Serve(w, r, ports.Request{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return s.cfg.Runner.DialPort(ctx, rec.ExecID, visitor, at.Port)
			},
			RawQuery: access.rawQuery, Secure: secure, KeepBearer: access.keepBearer,
		})
	}
	return portFault(ctx, err, at.Port)
}

// portFault returns the error of a request that was not answered.
func portFault(ctx context.Context, err error, port uint16) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.As(err, &known):
		return err
	case errors.Is(err, ports.ErrNoAnswer):
		return fault.Wrap(fault.UpstreamFailed, err, "the server on port %d in the session did not begin to answer within %s; see its output", port, portAnswer)
	}
	return fault.Wrap(fault.UpstreamFailed, err, "the server on port %d in the session has ended the connection without an answer in HTTP; see its output",
		port)
}

// portAccess finds out in whose name a request uses a port: by a token in the header, a link, or
// the cookie that a link has left.
func (s *Server) portAccess(r *http.Request, at ports.Address, secure bool) (a portAccess, err error) {
	texts, rawQuery := ports.Take(r.URL.RawQuery)
	a = portAccess{rawQuery: rawQuery, keepBearer: true}
	var byToken bool
	switch a.caller, byToken, err = s.portToken(r); {
	case err != nil:
		return a, err
	case byToken:
		a.keepBearer = false
	case len(texts) > 0:
		var ok bool
		if a.link, ok = ports.Open(s.cfg.LinkKey, at, texts[0], s.cfg.Now()); !ok {
			return a, fault.New(fault.Unauthenticated, "the link is none of this port, or has expired; ask for another one")
		}
	default:
		if a.link, a.byCookie = ports.OfCookies(s.cfg.LinkKey, at, r, secure, s.cfg.Now()); !a.byCookie {
			return a, fault.New(fault.Unauthenticated,
				"this port needs a link: POST %s makes one; programs may send Authorization: Bearer <token> instead", portLinkPath)
		}
	}
	if !byToken {
		if a.caller, err = s.linkToken(r, a.link); err != nil {
			return a, err
		}
	}
	if !s.portRoles(a.caller.Role) {
		return a, fault.New(fault.Forbidden, "a token with the role %s may not use ports of sessions", a.caller.Role)
	}
	return a, nil
}

// portToken returns the token in the header. Another Authorization is the application's.
func (s *Server) portToken(r *http.Request) (t tokens.Token, ok bool, err error) {
	headers := r.Header.Values("Authorization")
	for _, header := range headers {
		scheme, secret, _ := strings.Cut(header, " ")
		if secret = strings.TrimSpace(secret); !strings.EqualFold(scheme, "Bearer") || secret == "" {
			continue
		}
		if t, err = s.cfg.Tokens.Verify(r.Context(), secret); err == nil && len(headers) == 1 {
			return t, true, nil
		}
		if ours := err == nil || strings.HasPrefix(secret, tokens.Prefix); ours || !fault.Is(err, fault.Unauthenticated) {
			if err == nil {
				err = fault.New(fault.Unauthenticated, "there are several Authorization headers; send one")
			}
			return tokens.Token{}, false, err
		}
	}
	return tokens.Token{}, false, nil
}

// linkToken returns the token that made a link, if it is valid.
func (s *Server) linkToken(r *http.Request, l ports.Link) (tokens.Token, error) {
	if l.Token == runner.Tokenless {
		return s.gate.WithoutToken(r)
	}
	t, err := s.cfg.Tokens.ByID(r.Context(), l.Token)
	switch {
	case fault.Is(err, fault.UnknownToken):
		return t, fault.Wrap(fault.Unauthenticated, err, "the token that made the link is unknown; ask for another link")
	case err == nil && t.Revoked():
		return t, fault.New(fault.TokenRevoked, "the token that made the link was revoked; ask for another link")
	}
	return t, err
}

// portRoles reports whether tokens of a role may use ports.
func (s *Server) portRoles(role tokens.Role) bool {
	for _, op := range s.contract.Operations {
		if op.Path == portLinkPath {
			return slices.Contains(op.Roles, role)
		}
	}
	return false
}

// watchPort ends a request when its token is no longer valid, its link expires, or this node shuts
// down.
func (s *Server) watchPort(ctx context.Context, r *http.Request, a portAccess, end context.CancelCauseFunc) {
	check := min(streamCheck, s.cfg.TokenInterval)
	tick := time.NewTicker(check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closing:
			end(fault.New(fault.ShuttingDown, "the server is shutting down; try again"))
			return
		case <-tick.C:
		}
		if a.link.ID != "" && !s.cfg.Now().Before(a.link.Expires) {
			end(fault.New(fault.Unauthenticated, "the link has expired; ask for another one"))
			return
		}
		err := s.checks.Do(ctx, a.caller.ID, time.Now(), check, func(ctx context.Context) error {
			if a.link.ID == "" {
				_, _, err := s.portToken(r.WithContext(ctx))
				return err
			}
			_, err := s.linkToken(r.WithContext(ctx), a.link)
			return err
		})
		if noLongerValid(err) {
			end(err)
			return
		}
	}
}
