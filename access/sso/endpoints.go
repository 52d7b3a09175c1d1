package sso

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"secbox/fault"
)

// endpoints are what a provider says about itself.
type endpoints struct {
	provider  *oidc.Provider // with its keys, which are read again for a token that none of them signed
	authStyle oauth2.AuthStyle
	end       *url.URL // ends a browser's session there; nil: the provider has no such address
}

// How long an answer about the endpoints is used.
const (
	endpointsFresh = time.Hour
	failureFresh   = 5 * time.Second // while a provider is away, it is not asked for each stranger
)

// discover returns the endpoints. They are read when the first person signs in, so that a server
// starts without its provider, and again each hour.
func (p *Provider) discover(ctx context.Context) (*endpoints, error) {
	select {
	case p.finding <- struct{}{}:
		defer func() { <-p.finding }()
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	}
	age := p.cfg.Now().Sub(p.lastTime)
	if p.found != nil && age >= 0 && age < endpointsFresh {
		return p.found, nil
	}
	if p.found == nil && p.failed != nil && age >= 0 && age < failureFresh {
		return nil, p.failed
	}
	found, err := p.read(context.WithoutCancel(ctx)) // for all that wait
	p.lastTime = p.cfg.Now()
	if err != nil {
		p.failed = p.noAnswer(err)
		p.log.Warn("the provider of the single sign-on cannot be used", "issuer", p.cfg.Issuer, "error", cut(err.Error(), 500))
		if p.found == nil {
			return nil, p.failed
		}
		return p.found, nil
	}
	p.found, p.failed = found, nil
	return found, nil
}

// read asks the provider for its endpoints.
func (p *Provider) read(ctx context.Context) (*endpoints, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
		Keys        string   `json:"jwks_uri"`
		End         string   `json:"end_session_endpoint"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, err
	}
	at := provider.Endpoint()
	for name, address := range map[string]string{
		"authorization_endpoint": at.AuthURL, "token_endpoint": at.TokenURL,
		"jwks_uri": more.Keys,
	} {
		if u, err := url.Parse(address); err != nil || u.Host == "" || !private(u) {
			return nil, fmt.Errorf("the %s %q is not https", name, cut(address, 100))
		}
	}
	style := oauth2.AuthStyleInHeader // what a provider supports that names nothing
	if len(more.AuthMethods) > 0 && !slices.Contains(more.AuthMethods, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	end, err := url.Parse(more.End)
	if more.End != "" && (err != nil || end.Host == "" || end.User != nil || !private(end)) {
		p.log.Warn("the provider's address for signing out is not used: it is not https", "issuer", p.cfg.Issuer, "address",
			cut(more.End, 100))
		end = nil
	} else if more.End == "" {
		end = nil
	}
	return &endpoints{provider, style, end}, nil
}

// check refuses settings that cannot work.
func (cfg Config) check() error {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil || issuer.Host == "" || issuer.User != nil || strings.ContainsAny(cfg.Issuer, "?# ") || !private(issuer) {
		return fault.New(fault.InvalidSettings, "console.oidc.issuer must be https://host with or without a path, as the provider writes "+
			"it; http only on this machine")
	}
	to, err := url.Parse(cfg.RedirectURL)
	if err != nil || to.Host == "" || to.User != nil || strings.ContainsAny(cfg.RedirectURL, "?# ") || !private(to) ||
		to.Path != CallbackPath {
		return fault.New(fault.InvalidSettings, "console.oidc.redirect_url must be the console's address as browsers see it, with the "+
			"path %s: https://core.example%s; http only on this machine", CallbackPath, CallbackPath)
	}
	for name, value := range map[string]string{
		"console.oidc.client_id": cfg.ClientID, "CORE_API_CONSOLE_OIDC_CLIENT_SECRET": cfg.ClientSecret,
		"console.oidc.groups_claim": cfg.GroupsClaim,
	} {
		if value == "" {
			return fault.New(fault.InvalidSettings, "%s is missing; single sign-on needs it", name)
		}
	}
	if len(cfg.AdminGroups)+len(cfg.AuditorGroups)+len(cfg.WorkerGroups) == 0 {
		return fault.New(fault.InvalidSettings,
			"no group has a role; name some in console.oidc.admin_groups, auditor_groups or worker_groups")
	}
	return nil
}

// The paths of the console to which a provider sends browsers back: after a sign-in and after a
// sign-out there.
const (
	CallbackPath  = "/console/sign-in/oidc/callback"
	signedOutPath = "/console/sign-in"
)

// private reports whether no one on the network can read or change what is sent to an address.
func private(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// newClient returns a client whose answers have bounded time and size, and which sends nothing that
// others on the network can read.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	return &http.Client{Transport: bounded{transport}, Timeout: answerTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // another address must not get the client's secret
	}}
}

// bounded refuses unencrypted requests, and cuts off answers that are too long.
type bounded struct{ *http.Transport }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !private(r.URL) {
		return nil, errors.New("the provider names an address that is not https")
	}
	resp, err := b.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
