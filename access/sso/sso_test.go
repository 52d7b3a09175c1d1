package sso_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"secbox/access/sso"
	"secbox/access/tokens"
	"secbox/fault"
)

func TestSignIn(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	asked := b.begin()
	if asked.Get("response_type") != "code" || asked.Get("client_id") != "secbox" ||
		asked.Get("redirect_uri") != "https://core.example/console/sign-in/oidc/callback" ||
		asked.Get("scope") != "openid email" || asked.Get("code_challenge_method") != "S256" || len(asked.Get("state")) != 43 || len(asked.Get("nonce")) != 43 {
		t.Errorf("asked for %v", asked)
	}
	for _, values := range asked {
		if strings.Contains(values[0], secret) || strings.Contains(values[0], "client-secret") {
			t.Errorf("the address has a secret: %v", asked)
		}
	}
	got, err := b.p.Finish(t.Context(), secret, answer(asked, "session_state", "x", "iss", b.url))
	if err != nil || got.ID != "oidc:"+b.url+"#ada" || got.Name != "Ada Lovelace (ada@idp.example)" || got.Role != tokens.Auditor {
		t.Errorf("%+v, %v", got, err)
	}
	if b.form.Get("code") != "code-of-ada" || challenge(b.form.Get("code_verifier")) != asked.Get("code_challenge") || !b.basic ||
		b.form.Get("client_secret") != "" {
		t.Errorf("exchanged %v, basic %v", b.form, b.basic)
	}
	if b.asked["/userinfo"] != 0 {
		t.Error("userinfo was asked although the token has the groups")
	}
	again := b.begin()
	if again.Get("state") != asked.Get("state") {
		t.Error("the state does not depend on the browser's secret alone: other nodes could not check it")
	}
	other, err := b.p.Begin(t.Context(), "another"+secret)
	if err != nil || strings.Contains(other, asked.Get("state")) || strings.Contains(other, asked.Get("nonce")) ||
		strings.Contains(other, asked.Get("code_challenge")) {
		t.Errorf("another browser has the same state, nonce or challenge: %v", err)
	}
	if b.asked["/.well-known/openid-configuration"] != 1 || b.log.Len() != 0 {
		t.Errorf("asked %v, log %s", b.asked, b.log)
	}
}

// TestRefusedAnswers: what a browser brings back is refused before the provider is asked.
func TestRefusedAnswers(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	asked := b.begin()
	for name, c := range map[string]struct {
		secret string
		answer url.Values
		want   string
	}{
		"another state":    {secret, answer(asked, "state", strings.Repeat("A", 43)), "not to the last sign-in"},
		"no state":         {secret, url.Values{"code": {"x"}}, "not to the last sign-in"},
		"two states":       {secret, url.Values{"code": {"x"}, "state": {asked.Get("state"), "x"}}, "not to the last sign-in"},
		"another browser":  {"another" + secret, answer(asked), "not to the last sign-in"},
		"another provider": {secret, answer(asked, "iss", "https://evil.example"), "another provider"},
		"no code":          {secret, answer(asked, "code", ""), "no code"},
		"two codes":        {secret, url.Values{"code": {"x", "y"}, "state": asked["state"]}, "no code"},
		"an endless code":  {secret, answer(asked, "code", strings.Repeat("x", 9000)), "no code"},
		"a refusal": {
			secret, answer(asked, "error", "access_denied", "error_description", "you\x00 <script>\nmay "+strings.Repeat("not ", 1000)),
			"refused the sign-in: access_denied: you\x00 <script> may not",
		},
		"a foreign refusal": {secret, url.Values{"error": {"buy this"}}, "not to the last sign-in"},
	} {
		_, err := b.p.Finish(t.Context(), c.secret, c.answer)
		if !fault.Is(err, fault.Unauthenticated) || !strings.Contains(fault.From(err).Message, c.want) || len(fault.From(err).Message) > 600 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, failed := range []string{"server_error", "temporarily_unavailable"} { // the person has done nothing wrong
		if _, err := b.p.Finish(t.Context(), secret, answer(asked, "error", failed)); !fault.Is(err, fault.UpstreamFailed) ||
			!strings.Contains(fault.From(err).Message, "sign in with a token") {
			t.Errorf("%s: %v", failed, err)
		}
	}
	if b.asked["/token"] != 0 {
		t.Error("the provider was asked")
	}
}

// TestRefusedTokens: an ID token must be of this provider, for this client and this sign-in, valid
// now, and signed by a key of the provider.
func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	unsigned := func(alg string) string {
		part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		return part(`{"alg":"`+alg+`"}`) + "." + part(fmt.Sprintf(`{"iss":%q,"sub":"ada","aud":"secbox","exp":%d,"nonce":%q,"groups":["admins"]}`, b.url,
			b.now.Add(time.Hour).Unix(), b.claims["nonce"])) + "."
	}
	for name, c := range map[string]struct {
		change func()
		want   fault.Code
	}{
		"good":                        {func() {}, ""},
		"expired for a bit, by skew":  {func() { b.set(map[string]any{"exp": b.now.Add(-30 * time.Second).Unix()}) }, ""},
		"from a bit later, by skew":   {func() { b.set(map[string]any{"nbf": b.now.Add(3 * time.Minute).Unix()}) }, ""},
		"expired":                     {func() { b.set(map[string]any{"exp": b.now.Add(-2 * time.Minute).Unix()}) }, fault.UpstreamFailed},
		"without an expiry":           {func() { delete(b.claims, "exp") }, fault.UpstreamFailed},
		"not valid yet":               {func() { b.set(map[string]any{"nbf": b.now.Add(time.Hour).Unix()}) }, fault.UpstreamFailed},
		"another issuer":              {func() { b.set(map[string]any{"iss": "https://evil.example"}) }, fault.UpstreamFailed},
		"another audience":            {func() { b.set(map[string]any{"aud": "other"}) }, fault.UpstreamFailed},
		"many audiences":              {func() { b.set(map[string]any{"aud": []string{"secbox", "other"}}) }, fault.UpstreamFailed},
		"many audiences, for us":      {func() { b.set(map[string]any{"aud": []string{"secbox", "other"}, "azp": "secbox"}) }, ""},
		"for another client":          {func() { b.set(map[string]any{"azp": "other"}) }, fault.UpstreamFailed},
		"another nonce":               {func() { b.set(map[string]any{"nonce": "other"}) }, fault.Unauthenticated},
		"no nonce":                    {func() { delete(b.claims, "nonce") }, fault.Unauthenticated},
		"no subject":                  {func() { delete(b.claims, "sub") }, fault.UpstreamFailed},
		"a subject that is too long":  {func() { b.set(map[string]any{"sub": strings.Repeat("a", 240)}) }, fault.UpstreamFailed},
		"a subject that is not ASCII": {func() { b.set(map[string]any{"sub": "ad\u202ea"}) }, fault.UpstreamFailed},
		"unsigned":                    {func() { b.raw = unsigned("none") }, fault.UpstreamFailed},
		"an empty signature":          {func() { b.raw = unsigned("RS256") }, fault.UpstreamFailed},
		"no token":                    {func() { b.raw = "." }, fault.UpstreamFailed},
		"signed by another's key":     {func() { b.raw = sign(t, jose.RS256, makeKey(), "1", b.claims) }, fault.UpstreamFailed},
		"signed with the client's key": {
			func() { b.raw = sign(t, jose.HS256, []byte("client-secret-of-secbox-and-more"), "1", b.claims) },
			fault.UpstreamFailed,
		},
		"signed with the public key": {func() {
			b.raw = sign(t, jose.HS256, b.key.N.Bytes(), "1", b.claims)
		}, fault.UpstreamFailed},
	} {
		asked := b.begin()
		b.raw = ""
		c.change()
		got, err := b.p.Finish(t.Context(), secret, answer(asked))
		if fault.CodeOf(err) != c.want || err != nil && got.ID != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, hidden := range []string{"code-of-ada", "access-token-of-ada", "client-secret", secret} {
		if strings.Contains(b.log.String(), hidden) {
			t.Errorf("the log has %s: %s", hidden, b.log)
		}
	}
}

// TestRefusedCodes: a code is valid once; an error of the settings is named as one.
func TestRefusedCodes(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	for refusal, want := range map[string]struct {
		code fault.Code
		text string
	}{
		`{"error":"invalid_grant"}`: {fault.Unauthenticated, "valid once"},
		`{"error":"invalid_client","error_description":"<b>no such client"}`: {fault.UpstreamFailed, "console.oidc.client_id"},
		`<html>` + strings.Repeat("x", 100_000):                              {fault.UpstreamFailed, "without a reason"},
	} {
		b.refuse = refusal
		_, err := b.p.Finish(t.Context(), secret, answer(b.begin()))
		if fault.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) || len(err.Error()) > 1000 {
			t.Errorf("%.60s: %v", refusal, err)
		}
	}
}

// TestGroups: the highest role wins; groups come from the ID token or, if it has none, from
// userinfo.
func TestGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token, info any
		want        tokens.Role
		asks        int
	}{
		"one":                       {[]string{"workers"}, nil, tokens.Worker, 0},
		"several":                   {[]string{"workers", "admins", "auditors"}, nil, tokens.Admin, 0},
		"a text":                    {"admins", nil, tokens.Admin, 0},
		"with a comma":              {[]string{"cn=a,ou=b"}, nil, tokens.Auditor, 0},
		"in another case":           {[]string{"Admins", "admins "}, nil, "", 0},
		"among other things":        {[]any{1, nil, map[string]any{"admins": "admins"}, "workers"}, nil, tokens.Worker, 0},
		"no list":                   {map[string]any{"admins": true}, nil, "", 0},
		"an empty list":             {[]string{}, []string{"admins"}, "", 0},
		"in userinfo":               {nil, []string{"auditors"}, tokens.Auditor, 1},
		"in userinfo, without role": {nil, []string{"others"}, "", 1},
		"nowhere":                   {nil, nil, "", 1},
	} {
		b := startBad(t)
		asked := b.begin()
		b.claims["groups"], b.info = c.token, map[string]any{"sub": "ada", "groups": c.info, "name": "not this"}
		if c.token == nil {
			delete(b.claims, "groups")
		}
		if c.info == nil {
			delete(b.info, "groups")
		}
		got, err := b.p.Finish(t.Context(), secret, answer(asked))
		if err != nil || got.Role != c.want || b.asked["/userinfo"] != c.asks || got.Name != "Ada Lovelace (ada@idp.example)" {
			t.Errorf("%s: %+v, %v, asked %v", name, got, err, b.asked)
		}
	}
	b := startBad(t)
	asked := b.begin()
	delete(b.claims, "groups")
	b.info = map[string]any{"sub": "eve", "groups": []string{"admins"}}
	if got, err := b.p.Finish(t.Context(), secret, answer(asked)); !fault.Is(err, fault.UpstreamFailed) || got.ID != "" {
		t.Errorf("userinfo of another person: %+v, %v", got, err)
	}
}

// TestNames: whatever a provider calls a person, it is one visible line.
func TestNames(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	for want, change := range map[string]map[string]any{
		"Ada Lovelace":                 {"email_verified": false},
		"Ada":                          {"email_verified": "false", "name": "Ada"},
		"ada":                          {"name": nil, "email": nil},
		"lovelace":                     {"name": "", "email": nil, "preferred_username": "lovelace"},
		"ada@idp.example":              {"name": 7, "email_verified": nil},
		"A\ufffdB C":                   {"name": "A\u202eB\n\tC", "email": ""},
		strings.Repeat("x", 200) + "…": {"name": strings.Repeat("x", 300)},
	} {
		asked := b.begin()
		b.set(change)
		if got, err := b.p.Finish(t.Context(), secret, answer(asked)); err != nil || got.Name != want {
			t.Errorf("%v: %q, %v", change, got.Name, err)
		}
	}
}

// TestKeysRotate: a token of a new key is accepted; the keys are read again for it.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	for n, kid := range []string{"1", "1", "2"} {
		if kid == "2" {
			b.key, b.kid = makeKey(), kid
		}
		if _, err := b.p.Finish(t.Context(), secret, answer(b.begin())); err != nil || b.asked["/keys"] != []int{1, 1, 2}[n] {
			t.Errorf("key %s: %v, asked %v", kid, err, b.asked)
		}
	}
}

// TestProviderAway: it is asked when a person signs in, and again when it has come back, but not
// for each stranger.
func TestProviderAway(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	b.status = http.StatusBadGateway
	for range 5 {
		if _, err := b.p.Begin(t.Context(), secret); !fault.Is(err, fault.UpstreamFailed) ||
			!strings.Contains(fault.From(err).Message, "sign in with a token") {
			t.Error(err)
		}
	}
	if b.asked["/.well-known/openid-configuration"] != 1 {
		t.Errorf("asked %v", b.asked)
	}
	b.status, b.now = 0, b.now.Add(6*time.Second)
	b.begin()
	b.now = b.now.Add(2 * time.Hour)
	b.status = http.StatusBadGateway
	if _, err := b.p.Begin(t.Context(), secret); err != nil {
		t.Errorf("the endpoints are forgotten: %v", err)
	}
	b.status, b.long = 0, true
	if _, err := b.p.Finish(t.Context(), secret, answer(b.begin())); !fault.Is(err, fault.UpstreamFailed) {
		t.Errorf("an endless answer: %v", err)
	}
}

// TestBadEndpoints: the provider must be the configured one, and all its addresses private.
func TestBadEndpoints(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"issuer": "https://other.example", "authorization_endpoint": "javascript:alert(1)", "token_endpoint": "http://192.0.2.1/token", "jwks_uri": "",
	} {
		b := startBad(t)
		b.discovery[name] = value
		if _, err := b.p.Begin(t.Context(), secret); !fault.Is(err, fault.UpstreamFailed) {
			t.Errorf("%s %q: %v", name, value, err)
		}
	}
	b := startBad(t)
	b.discovery["userinfo_endpoint"], b.discovery["token_endpoint_auth_methods_supported"] = "http://192.0.2.1/", []string{"client_secret_post"}
	asked := b.begin()
	delete(b.claims, "groups")
	if _, err := b.p.Finish(t.Context(), secret, answer(asked)); !fault.Is(err, fault.UpstreamFailed) {
		t.Errorf("userinfo without encryption: %v", err)
	}
	if b.basic || b.form.Get("client_secret") != "client-secret-of-secbox" {
		t.Errorf("the client's secret is not where the provider wants it: %v", b.form)
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	good := sso.Config{
		Issuer: "https://idp.example/realm", ClientID: "a", ClientSecret: "b", RedirectURL: "https://core.example" + sso.CallbackPath,
		GroupsClaim: "groups", WorkerGroups: []string{"w"},
	}
	if p, err := sso.New(good); err != nil || p.Name() != "idp.example" || p.Origin() != "https://core.example" {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*sso.Config, string){
		"console.oidc.issuer":                 func(c *sso.Config, s string) { c.Issuer = s },
		"console.oidc.redirect_url":           func(c *sso.Config, s string) { c.RedirectURL = s },
		"console.oidc.client_id":              func(c *sso.Config, _ string) { c.ClientID = "" },
		"CORE_API_CONSOLE_OIDC_CLIENT_SECRET": func(c *sso.Config, _ string) { c.ClientSecret = "" },
		"console.oidc.groups_claim":           func(c *sso.Config, _ string) { c.GroupsClaim = "" },
		"console.oidc.admin_groups":           func(c *sso.Config, _ string) { c.WorkerGroups = nil },
	} {
		for _, bad := range []string{
			"", "idp.example", "http://idp.example" + sso.CallbackPath, "http://192.0.2.1" + sso.CallbackPath,
			"https://u:p@idp.example" + sso.CallbackPath, "ftp://idp.example" + sso.CallbackPath, "https://core.example" + sso.CallbackPath + "?x",
			"https://core.example" + sso.CallbackPath + "#x",
		} {
			cfg := good
			change(&cfg, bad)
			if _, err := sso.New(cfg); !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: %v", want, bad, err)
			}
		}
	}
	for _, local := range []string{"http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost"} {
		cfg := good
		cfg.Issuer, cfg.RedirectURL = local, local+sso.CallbackPath
		if _, err := sso.New(cfg); err != nil {
			t.Errorf("%s: %v", local, err)
		}
	}
}
