// Package sso signs people in to the console through an OIDC provider, and maps a person's groups
// to a role. It uses the authorization code flow with PKCE. It uses a provider's tokens once and
// stores none. It must not know cookies, pages or sessions' secrets.
package sso

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/fault"
)

// Config is a client of a provider, and what its groups mean here. All fields but Scopes, the
// groups, Logger and Now are required.
type Config struct {
	Issuer       string   // as the provider writes it in its tokens
	ClientID     string   // of this installation, at the provider
	ClientSecret string   // of the client
	RedirectURL  string   // of the console, as it is registered with the provider
	Scopes       []string // beside openid

	GroupsClaim                              string // the claim that lists a person's groups
	AdminGroups, AuditorGroups, WorkerGroups []string

	Logger *slog.Logger     // nil: no log
	Now    func() time.Time // nil: time.Now
}

// Bounds of what a provider and a browser may send and cause.
const (
	answerTimeout = 10 * time.Second // of each of the provider's answers
	maxAnswer     = 1 << 20          // bytes of each
	maxCode       = 8 << 10          // bytes of an authorization code
	maxID         = 255              // bytes of a person's id, as of every filter by it
	maxName       = 200              // characters of a person's name
	maxAtOnce     = 16               // sign-ins that wait for the provider
	skew          = time.Minute      // by which the provider's clock may be behind; by nbf it may be 4 minutes ahead
)

// Provider is a client of an OIDC provider. It is safe for concurrent use.
type Provider struct {
	cfg   Config
	log   *slog.Logger
	http  *http.Client
	turns chan struct{} // holds a value for each sign-in that waits for the provider

	finding  chan struct{} // holds a value while found is used
	found    *endpoints    // nil: not yet
	failed   error         // of the last search
	lastTime time.Time     // of the last search
}

// New makes a Provider, and asks nothing yet. fault.InvalidSettings.
func New(cfg Config) (*Provider, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Provider{cfg: cfg, log: cfg.Logger, http: newClient(), turns: make(chan struct{}, maxAtOnce), finding: make(chan struct{}, 1)},
		nil
}

// Name returns the provider's host, for people.
func (p *Provider) Name() string {
	u, err := url.Parse(p.cfg.Issuer)
	if err != nil { // cannot happen: New has parsed it
		return p.cfg.Issuer
	}
	return u.Host
}

// Issuer returns the provider's issuer.
func (p *Provider) Issuer() string { return p.cfg.Issuer }

// Origin returns the scheme and host at which browsers reach the console.
func (p *Provider) Origin() string {
	u, err := url.Parse(p.cfg.RedirectURL)
	if err != nil { // cannot happen: New has parsed it
		return p.cfg.RedirectURL
	}
	return u.Scheme + "://" + u.Host
}

// Close closes idle connections.
func (p *Provider) Close() { p.http.CloseIdleConnections() }

// derive returns what belongs to the sign-in of a browser: state, nonce or verifier. Only who knows
// the browser's secret can make or check it.
func derive(secret, what string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("secbox sign-in " + what))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Begin returns the address of the provider to which a browser goes to sign in. secret is random
// and known to this browser only. fault.UpstreamFailed when the provider does not answer,
// fault.ServerBusy.
func (p *Provider) Begin(ctx context.Context, secret string) (string, error) {
	leave, err := p.enter()
	if err != nil {
		return "", err
	}
	defer leave()
	at, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return p.client(at).AuthCodeURL(derive(secret, "state"), oidc.Nonce(derive(secret, "nonce")),
		oauth2.S256ChallengeOption(derive(secret, "verifier"))), nil
}

// EndAddress returns the address at which a browser ends its session at the provider, which sends
// it back to the console's page for signing in; empty if the provider has none. The provider's
// tokens are kept nowhere, so the address names the client and no person: the provider knows the
// browser, and may ask the person. fault.UpstreamFailed when the provider does not answer,
// fault.ServerBusy.
func (p *Provider) EndAddress(ctx context.Context) (string, error) {
	leave, err := p.enter()
	if err != nil {
		return "", err
	}
	defer leave()
	at, err := p.discover(ctx)
	if err != nil || at.end == nil {
		return "", err
	}
	end := *at.end
	query := end.Query()
	query.Set("client_id", p.cfg.ClientID)
	query.Set("post_logout_redirect_uri", p.Origin()+signedOutPath)
	end.RawQuery = query.Encode()
	return end.String(), nil
}

// Finish returns the person that the provider has signed in, given the parameters of its answer and
// the secret that Begin returned. A person whose groups have no role has none. Errors:
// fault.Unauthenticated for an answer to another browser, for an answer that was used before, and
// when the provider refused; fault.UpstreamFailed when the provider says that it has failed, does
// not answer, or answers wrongly; fault.ServerBusy.
func (p *Provider) Finish(ctx context.Context, secret string, answer url.Values) (sessions.Person, error) {
	if !equal(answer.Get("state"), derive(secret, "state")) || len(answer["state"]) != 1 {
		return sessions.Person{}, fault.New(fault.Unauthenticated,
			"The answer of %s is not to the last sign-in that this browser began. Begin again.", p.Name())
	}
	if iss, ok := answer["iss"]; ok && !slices.Equal(iss, []string{p.cfg.Issuer}) {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "The answer is of another provider than %s. Begin again.", p.Name())
	}
	if code := answer.Get("error"); code == "server_error" || code == "temporarily_unavailable" {
		return sessions.Person{}, p.badAnswer("cannot sign in people now: %s; try again later, or sign in with a token",
			errorText(code, answer.Get("error_description")))
	} else if code != "" {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "%s refused the sign-in: %s", p.Name(),
			errorText(code, answer.Get("error_description")))
	}
	code := answer.Get("code")
	if code == "" || len(code) > maxCode || len(answer["code"]) != 1 {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "The answer of %s has no code. Begin again.", p.Name())
	}
	leave, err := p.enter()
	if err != nil {
		return sessions.Person{}, err
	}
	defer leave()
	at, err := p.discover(ctx)
	if err != nil {
		return sessions.Person{}, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), 2*answerTimeout)
	defer cancel()
	token, err := p.client(at).Exchange(ctx, code, oauth2.VerifierOption(derive(secret, "verifier")))
	if err != nil {
		return sessions.Person{}, p.refusedCode(err)
	}
	return p.identify(ctx, at, token, derive(secret, "nonce"))
}

// enter takes one of the places of sign-ins that wait for the provider.
func (p *Provider) enter() (leave func(), err error) {
	select {
	case p.turns <- struct{}{}:
		return func() { <-p.turns }, nil
	default:
		return nil, fault.New(fault.ServerBusy, "%d sign-ins wait for %s; try again", maxAtOnce, p.Name())
	}
}

// client is this installation as a client of the provider.
func (p *Provider) client(at *endpoints) *oauth2.Config {
	endpoint := at.provider.Endpoint()
	endpoint.AuthStyle = at.authStyle
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.RedirectURL, Endpoint: endpoint,
		Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
	}
}

// refusedCode explains why a code gave no token.
func (p *Provider) refusedCode(err error) error {
	var refused *oauth2.RetrieveError
	switch {
	case !errors.As(err, &refused):
		return p.noAnswer(err)
	case refused.ErrorCode == "invalid_grant":
		return fault.New(fault.Unauthenticated,
			"%s knows the code no more, with which it sent you back: it is valid once and for a short time. Begin again.", p.Name())
	}
	return p.badAnswer("refused the code: %s; if it refuses the client, correct console.oidc.client_id and CORE_API_CONSOLE_OIDC_CLIENT_SECRET", errorText(refused.ErrorCode, refused.ErrorDescription))
}

// noAnswer is the error of a provider that does not answer.
func (p *Provider) noAnswer(err error) error {
	return fault.Wrap(fault.UpstreamFailed, errors.New(cut(err.Error(), 500)),
		"%s does not answer as a provider should. Try again later, or sign in with a token.", p.Name())
}

// badAnswer is the error of a provider whose answer cannot be used. The log has it, too.
func (p *Provider) badAnswer(format string, args ...any) error {
	e := fault.New(fault.UpstreamFailed, p.Name()+" "+format, args...)
	p.log.Warn("a sign-in failed", "issuer", p.cfg.Issuer, "error", e.Message)
	return e
}

// errorText is the provider's text of an error, for a page.
func errorText(code, description string) string {
	if code = cut(code, 60); code == "" {
		code = "without a reason"
	}
	if description == "" {
		return code
	}
	return code + ": " + cut(description, 300)
}

// role returns the highest role of the groups; empty if none has one.
func (p *Provider) role(groups []string) tokens.Role {
	for _, r := range []struct {
		role   tokens.Role
		groups []string
	}{{tokens.Admin, p.cfg.AdminGroups}, {tokens.Auditor, p.cfg.AuditorGroups}, {tokens.Worker, p.cfg.WorkerGroups}} {
		if slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(r.groups, g) }) {
			return r.role
		}
	}
	return ""
}

func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// cut makes text of a provider one line of UTF-8 with at most n characters.
func cut(s string, n int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s[:min(len(s), 8*n)], "�")), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
