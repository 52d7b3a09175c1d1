package policy_test

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/policy"
)

// credentials is the policy of an operator with two secrets.
func credentials(t *testing.T) *policy.Resolver {
	t.Helper()
	return resolver(t, policy.Config{
		Settings: policy.Layer{NetMode: ptr("allowlist"), NetAllow: []string{"*.example.org", "git.example.org:8443", "one.example.net:443"}},
		Secrets: map[string]policy.SecretRule{
			"key": {Hosts: []string{"*.example.org", "git.example.org:8443", "one.example.net"}},
			"git": {Hosts: []string{"git.example.org"}, As: []string{"basic", "header x-api-key", "header authorization: Token"}},
		},
	})
}

// TestCredentials: layers get the secrets that the settings allow for the host, as they allow it; a
// request only narrows what a manifest has.
func TestCredentials(t *testing.T) {
	t.Parallel()
	key := credential("key", "api.example.org", "Authorization: Bearer")
	two := append(credential("key", "*.example.org", "X-Key"), policy.Credential{Secret: "git", Host: "git.example.org", Basic: "me"})
	for name, c := range map[string]struct {
		manifest, request []policy.Credential
		mode              string
		allow             []string
		want              []policy.Credential
		denied            string
	}{
		"none":                     {want: []policy.Credential{}},
		"a manifest's":             {manifest: key, want: key},
		"a request's":              {request: key, want: key},
		"a port of net.allow":      {request: credential("key", "git.example.org:8443", "X-Key"), want: credential("key", "git.example.org:8443", "X-Key")},
		"only the port for TLS":    {request: credential("key", "one.example.net", "X-Key"), want: credential("key", "one.example.net", "X-Key")},
		"a narrower request":       {manifest: two, request: credential("key", "a.example.org", "X-Key"), want: credential("key", "a.example.org", "X-Key")},
		"an empty request":         {manifest: two, request: []policy.Credential{}, want: []policy.Credential{}},
		"a wider request":          {manifest: key, request: two, want: key, denied: "can only narrow"},
		"another form":             {manifest: key, request: credential("key", "api.example.org", "X-Key"), want: key, denied: "can only narrow"},
		"an unknown secret":        {request: credential("other", "api.example.org", "X-Key"), denied: "no such secret"},
		"another host":             {request: credential("git", "api.example.org", "X-Api-Key"), denied: "is for git.example.org as basic, header X-Api-Key"},
		"another port":             {request: credential("key", "api.example.org:8443", "X-Key"), denied: "is for"},
		"a form that is not meant": {request: credential("git", "git.example.org", "Authorization"), denied: "as basic, header X-Api-Key, header Authorization: Token"},
		"another text":             {request: credential("git", "git.example.org", "Authorization: Bearer"), denied: "as basic, header X-Api-Key"},
		"a text where none is":     {request: credential("git", "git.example.org", "X-Api-Key: a"), denied: "as basic, header X-Api-Key"},
		"a text that is meant": {
			request: credential("git", "git.example.org", "AUTHORIZATION: Token"), want: credential("git", "git.example.org", "AUTHORIZATION: Token"),
		},
		"a form that is meant": {request: credential("git", "git.example.org", "x-api-key"), want: credential("git", "git.example.org", "x-api-key")},
		"without a network":    {request: key, mode: "none", denied: `net.mode is "none"`},
		"a host out of reach":  {request: key, allow: []string{"git.example.org"}, denied: "net.allow does not have the host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := policy.Layer{NetCredentials: c.request, NetAllow: c.allow}
			if c.mode != "" {
				request.NetMode = &c.mode
			}
			s, err := credentials(t).Resolve(&policy.Layer{NetCredentials: c.manifest}, request, policy.Host{})
			if c.want == nil {
				c.want = []policy.Credential{}
			}
			if !reflect.DeepEqual(s.Values.NetCredentials, c.want) || fault.Is(err, fault.PolicyDenied) != (c.denied != "") {
				t.Fatalf("%+v %v", s.Values.NetCredentials, err)
			}
			if c.denied != "" && (!strings.Contains(err.Error(), c.denied) || policy.ParseDenied(fault.From(err).Message)[0].Layer != "request") {
				t.Errorf("%v, read back as %+v", err, policy.ParseDenied(fault.From(err).Message))
			}
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := policy.ParseSnapshot(data); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("stored: %v\n%+v\n%+v", err, again, s)
			}
			if f := s.Fields["net.credentials"]; !reflect.DeepEqual(f.Ceiling, []string{"git", "key"}) || f.CeilingFrom != "settings" {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestCredentialsOfASession: its container has them; a skill in it gets what its manifest has.
func TestCredentialsOfASession(t *testing.T) {
	t.Parallel()
	key := credential("key", "*.example.org", "X-Key")
	s, err := credentials(t).Resolve(nil, policy.Layer{NetCredentials: key}, policy.Host{})
	if err != nil {
		t.Fatal(err)
	}
	fs := policy.Layer{FSRead: s.Values.FSRead, FSWrite: s.Values.FSWrite}
	narrow, wide := fs, fs
	narrow.NetCredentials, wide.NetCredentials = credential("key", "a.example.org", "X-Key"), credential("git", "git.example.org", "X-Api-Key")
	for name, c := range map[string]struct {
		manifest *policy.Layer
		request  policy.Layer
		want     []policy.Credential
		denied   bool
	}{
		"a command":           {nil, policy.Layer{}, key, false},
		"a command that asks": {nil, policy.Layer{NetCredentials: key}, key, true},
		"a skill without":     {&fs, policy.Layer{}, []policy.Credential{}, false},
		"a skill with fewer":  {&narrow, policy.Layer{}, narrow.NetCredentials, false},
		"a skill with more":   {&wide, policy.Layer{}, wide.NetCredentials, true},
	} {
		in, err := s.Within(c.manifest, c.request)
		if !reflect.DeepEqual(in.Values.NetCredentials, c.want) || fault.Is(err, fault.PolicyDenied) != c.denied {
			t.Errorf("%s: %+v %v", name, in.Values.NetCredentials, err)
		}
	}
}

// TestAdd: the secret replaces what the job has sent under the name, in any spelling.
func TestAdd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		credential        policy.Credential
		url, header, want string
	}{
		"header":   {policy.Credential{Header: "x-key"}, "/", "X-Key", "s3 &"},
		"prefix":   {policy.Credential{Header: "Authorization: Bearer"}, "/", "Authorization", "Bearer s3 &"},
		"basic":    {policy.Credential{Basic: "me"}, "/", "Authorization", "Basic bWU6czMgJg=="},
		"query":    {policy.Credential{Query: "key"}, "/?a=1&key=mine&k%65y=mine&b", "", "a=1&b&key=s3+%26"},
		"no query": {policy.Credential{Query: "key"}, "/", "", "key=s3+%26"},
	} {
		r := httptest.NewRequest("GET", c.url, nil)
		r.Header["Authorization"], r.Header["X-Key"] = []string{"mine", "too"}, []string{"mine", "too"}
		c.credential.Add(r, "s3 &")
		got := r.URL.RawQuery
		if c.header != "" {
			got = strings.Join(r.Header[c.header], "|")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
