package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
	"secbox/tokens"
)

// loopbackID is who asks when no token is needed: requested_by in the record.
const loopbackID = runner.Tokenless

// authenticate finds out who asks. A token that is presented must be good, even where none is needed.
func (s *Server) authenticate(r *http.Request) (tokens.Token, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return s.withoutToken(r)
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	secret = strings.TrimSpace(secret)
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return tokens.Token{}, fault.New(fault.Unauthenticated, "the Authorization header is not understood; send: Authorization: Bearer <token>")
	}
	return s.cfg.Tokens.Verify(r.Context(), secret)
}

// withoutToken lets a program of this machine in as an admin until the first token has existed. The connection decides, not a header: the
// server is bound to loopback and the other end is on loopback. A request that a proxy passed on is not from this machine; a proxy that adds
// no header cannot be told from a program, so the setting of trusted proxies asks for tokens always.
func (s *Server) withoutToken(r *http.Request) (tokens.Token, error) {
	needed := fault.New(fault.Unauthenticated, "this request needs a token: send Authorization: Bearer <token>; core-api token create makes one")
	if !s.guard.loopback || !fromLoopback(r) || len(s.cfg.TrustedProxies) > 0 {
		return tokens.Token{}, needed
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(header)) > 0 {
			return tokens.Token{}, needed
		}
	}
	exists, err := s.cfg.Tokens.Any(r.Context())
	if err != nil {
		return tokens.Token{}, err
	}
	if exists {
		return tokens.Token{}, needed
	}
	return tokens.Token{ID: loopbackID, Name: loopbackID, Role: tokens.Admin}, nil
}

func fromLoopback(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && remote.Addr().Unmap().IsLoopback()
}

// mayUse refuses a project, agent or user that is not in the token's scope, naming what is missing. Without a project, the conversation
// serves as one.
func mayUse(t tokens.Token, project, conversation, user string) error {
	named := "project_id"
	if project == "" && conversation != "" {
		project, named = conversation, "conversation_id"
	}
	if t.MayUse(project, "", user) {
		return nil
	}
	if len(t.Users) > 0 && !strings.Contains(project, "~") && !slices.Contains(t.Projects, project) {
		return outOfScope([]fault.Field{{
			Field: named, Reason: "the token is limited to users, and may use their workspaces only: <agentId>~<userId>",
		}})
	}
	var bad []fault.Field
	for _, one := range []struct {
		field, what string
		scope       tokens.Token
	}{
		{named, "project", tokens.Token{Projects: t.Projects}},
		{named, "agent", tokens.Token{Agents: t.Agents}},
		{"user_id", "user", tokens.Token{Users: t.Users}},
	} {
		if !one.scope.MayUse(project, "", user) {
			bad = append(bad, fault.Field{Field: one.field, Reason: "the " + one.what + " is not in the token's scope"})
		}
	}
	return outOfScope(bad)
}

// maySee is who sees a record: a worker its own execs, and those who may read the history all of them.
func maySee(t tokens.Token, rec audit.Record) bool {
	return t.Role != tokens.Worker || rec.RequestedBy == t.ID
}
