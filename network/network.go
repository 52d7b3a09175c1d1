package network

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"secbox/audit"
)

// Config configures a Network. All fields are required unless they say otherwise.
type Config struct {
	Store audit.Connections
	// Private are networks whose addresses jobs may reach although they are private, of this
	// machine, or otherwise refused.
	Private []netip.Prefix
	// Lookup resolves a name; nil: the system's resolver. Dial dials a checked address; nil: a
	// net.Dialer.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
	// Secrets are what policies have in net.credentials; nil: there are none. RootCAs verify the
	// hosts that get them; nil: the system's.
	Secrets Secrets
	RootCAs *x509.CertPool
	// Connections bounds the connections of all execs at once, PerToken the connections of a token.
	Connections, PerToken int
	VisitRest             time.Duration // how long a visit lasts after its last connection; 0: a minute
	Now                   func() time.Time
	Logger                *slog.Logger
}

// Network carries the connections of all execs of a node. It is safe for concurrent use.
type Network struct {
	cfg Config
	own ownAddresses
	// authority returns the authority of the process.
	authority func() (*authority, error)

	mu     sync.Mutex
	open   int
	tokens map[string]int
	ways   map[string]*Way // that are open, by the ids of their execs
}

// New makes a Network.
func New(cfg Config) *Network {
	if cfg.Lookup == nil {
		cfg.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			if strings.Contains(name, ".") {
				name += "." // without the search list
			}
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if cfg.Dial == nil {
		var d net.Dialer
		cfg.Dial = func(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address.String())
		}
	}
	return &Network{cfg: cfg, tokens: map[string]int{}, ways: map[string]*Way{}, authority: sync.OnceValues(func() (*authority, error) {
		var hosts []string
		if cfg.Secrets != nil {
			hosts = cfg.Secrets.Hosts()
		}
		return newAuthority(hosts, cfg.Now)
	})}
}

// enter takes a place for a connection of a token, or says which limit is reached.
func (n *Network) enter(token string) (limit string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.open >= n.cfg.Connections:
		return "this node carries as many connections as it may (the setting sandbox.net.max_concurrent_connections raises it)"
	case n.tokens[token] >= n.cfg.PerToken:
		return "the execs of this token have as many connections as they may (the setting sandbox.net.max_concurrent_connections_per_token " +
			"raises it)"
	}
	n.open++
	n.tokens[token]++
	return ""
}

func (n *Network) leave(token string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open--
	if n.tokens[token]--; n.tokens[token] == 0 {
		delete(n.tokens, token)
	}
}

// Count returns how many connections are open.
func (n *Network) Count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}
