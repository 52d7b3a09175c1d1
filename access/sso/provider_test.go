package sso_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"secbox/access/sso"
)

// secret is the sign-in secret of the browser.
const secret = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST"

// badProvider answers as a test wants it to. A real provider is in the tests of package console.
type badProvider struct {
	t   *testing.T
	url string
	p   *sso.Provider
	log *strings.Builder
	now time.Time

	mu        sync.Mutex
	key       *rsa.PrivateKey
	kid       string
	alg       jose.SignatureAlgorithm
	discovery map[string]any
	claims    map[string]any // of the ID token
	info      map[string]any // of userinfo
	raw       string         // the ID token instead of claims
	refuse    string         // the body of a refusal of the code
	status    int            // of everything; 0: 200
	long      bool           // endless answers
	asked     map[string]int // requests by path
	form      url.Values     // of the last exchange
	basic     bool           // it had the client's secret in a header
}

var firstKey = sync.OnceValue(func() *rsa.PrivateKey { return makeKey() })

func makeKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

func startBad(t *testing.T, change ...func(*sso.Config)) *badProvider {
	t.Helper()
	b := &badProvider{t: t, key: firstKey(), kid: "1", alg: jose.RS256, asked: map[string]int{}, log: &strings.Builder{}, now: time.Now()}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL
	b.discovery = map[string]any{
		"issuer": b.url, "authorization_endpoint": b.url + "/auth", "token_endpoint": b.url + "/token", "jwks_uri": b.url + "/keys",
		"userinfo_endpoint":                     b.url + "/userinfo",
		"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
	}
	cfg := sso.Config{
		Issuer: b.url, ClientID: "secbox", ClientSecret: "client-secret-of-secbox", RedirectURL: "https://core.example" + sso.CallbackPath,
		Scopes: []string{"email"}, GroupsClaim: "groups",
		AdminGroups: []string{"admins"}, AuditorGroups: []string{"auditors", "cn=a,ou=b"}, WorkerGroups: []string{"workers"},
		Logger: slog.New(slog.NewTextHandler(b.log, nil)), Now: func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now },
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if b.p, err = sso.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.p.Close)
	return b
}

func (b *badProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[r.URL.Path]++
	if b.status != 0 {
		w.WriteHeader(b.status)
		_, _ = w.Write([]byte("<h1>down</h1>"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if b.long {
		for range 64 {
			_, _ = w.Write([]byte(strings.Repeat(" ", 64<<10)))
		}
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = b.discovery
	case "/keys":
		answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: b.key.Public(), KeyID: b.kid, Algorithm: "RS256", Use: "sig"}}}
	case "/userinfo":
		answer = b.info
	case "/token":
		_ = r.ParseForm()
		b.form = r.PostForm
		_, _, b.basic = r.BasicAuth()
		if b.refuse != "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(b.refuse))
			return
		}
		raw := b.raw
		if raw == "" {
			raw = sign(b.t, b.alg, b.key, b.kid, b.claims)
		}
		answer = map[string]any{"access_token": "access-token-of-ada", "token_type": "Bearer", "id_token": raw}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Error(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Error(err)
		return ""
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Error(err)
	}
	return text
}

// begin begins a sign-in of the browser with the secret, and prepares the claims of an auditor.
func (b *badProvider) begin() url.Values {
	b.t.Helper()
	address, err := b.p.Begin(b.t.Context(), secret)
	if err != nil {
		b.t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, b.url+"/auth?") {
		b.t.Fatalf("%s, %v", address, err)
	}
	q := u.Query()
	b.claims = map[string]any{
		"iss": b.url, "sub": "ada", "aud": "secbox", "exp": b.now.Add(time.Minute).Unix(), "iat": b.now.Unix(), "nonce": q.Get("nonce"),
		"groups": []string{"x", "auditors"},
		"name":   "Ada Lovelace", "email": "ada@idp.example", "email_verified": true,
	}
	return q
}

// answer are the parameters with which the provider sends the browser back.
func answer(asked url.Values, more ...string) url.Values {
	a := url.Values{"state": asked["state"], "code": {"code-of-ada"}}
	for i := 0; i < len(more); i += 2 {
		a.Set(more[i], more[i+1])
	}
	return a
}

func (b *badProvider) set(claims map[string]any) { maps.Copy(b.claims, claims) }

func challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
