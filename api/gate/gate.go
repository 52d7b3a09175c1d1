// Package gate decides which requests may pass: by their Host and Origin, by their token, and by
// the scope of that token. It must not know routes or handlers.
package gate

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"

	"secbox/access/tokens"
	"secbox/fault"
	"secbox/runner"
)

// Tokens verifies bearer tokens. Safe for concurrent use.
type Tokens interface {
	// Verify returns the token of a secret: fault.Unauthenticated, fault.TokenRevoked,
	// fault.DatabaseUnavailable.
	Verify(ctx context.Context, secret string) (tokens.Token, error)

	// Any reports whether a token of another role than runner exists or has existed: from then on
	// every request needs one.
	Any(ctx context.Context) (bool, error)
}

// Config says what a Gate lets pass.
type Config struct {
	ListenAddr     string   // host:port. On loopback, requests need no token until the first one exists.
	AllowedHosts   []string // more Host headers to answer: "name" for any port, or "name:port"
	TrustedProxies []string // addresses and networks; with any, every request needs a token
	Tokens         Tokens
}

// Gate is safe for concurrent use.
type Gate struct {
	hosts   hosts
	address echo.IPExtractor
	proxied bool
	tokens  Tokens
}

// New returns fault.InvalidSettings for addresses and names that it cannot parse.
func New(cfg Config) (*Gate, error) {
	hosts, err := newHosts(cfg.ListenAddr, cfg.AllowedHosts)
	if err != nil {
		return nil, err
	}
	address, err := clientAddress(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	return &Gate{hosts: hosts, address: address, proxied: len(cfg.TrustedProxies) > 0, tokens: cfg.Tokens}, nil
}

// ClientAddress returns the address of the client: of the connection, or what a trusted proxy says
// in X-Forwarded-For.
func (g *Gate) ClientAddress(r *http.Request) string { return g.address(r) }

// Secure reports whether the client's connection is TLS: here, or at a trusted proxy, which says so
// in X-Forwarded-Proto.
func (g *Gate) Secure(r *http.Request) bool {
	return r.TLS != nil || g.proxied && r.Header.Get("X-Forwarded-Proto") == "https"
}

// CheckHost refuses a Host that is not this server's and, on loopback, a request that a page of
// another origin made.
func (g *Gate) CheckHost(r *http.Request) error { return g.hosts.check(r, false) }

// CheckArrival is CheckHost for an address to which another site may lead a browser, if it shows
// the answer as a page of its own.
func (g *Gate) CheckArrival(r *http.Request) error { return g.hosts.check(r, true) }

// Authenticate returns the token of a request. A request with a bad token is refused even where it
// needs none.
func (g *Gate) Authenticate(r *http.Request) (tokens.Token, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return g.WithoutToken(r)
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	secret = strings.TrimSpace(secret)
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return tokens.Token{}, fault.New(fault.Unauthenticated, "malformed Authorization header; send: Authorization: Bearer <token>")
	}
	return g.tokens.Verify(r.Context(), secret)
}

// WithoutToken admits programs of this machine as admin until the first token has been created. The
// connection decides, not a header: the server listens on loopback and the client is on loopback. A
// request with a proxy's header comes from elsewhere. A proxy that adds no header looks like a
// local program; with trusted proxies configured, every request therefore needs a token.
func (g *Gate) WithoutToken(r *http.Request) (tokens.Token, error) {
	needed := fault.New(fault.Unauthenticated,
		"this request needs a token: send Authorization: Bearer <token>; core-api token create makes one")
	if !g.hosts.loopback || !fromLoopback(r) || g.proxied {
		return tokens.Token{}, needed
	}
	for _, header := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server",
		"X-Real-Ip", "Via",
	} {
		if len(r.Header.Values(header)) > 0 {
			return tokens.Token{}, needed
		}
	}
	exists, err := g.tokens.Any(r.Context())
	if err != nil {
		return tokens.Token{}, err
	}
	if exists {
		return tokens.Token{}, needed
	}
	return tokens.Token{ID: runner.Tokenless, Name: runner.Tokenless, Role: tokens.Admin}, nil
}

func fromLoopback(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && remote.Addr().Unmap().IsLoopback()
}
