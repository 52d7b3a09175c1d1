package policy

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// Credential is an entry of net.credentials: a secret that core-api adds to the job's requests to a
// host. It has one of Header, Basic and Query.
type Credential struct {
	Secret string `json:"secret"`           // a name in sandbox.secrets
	Host   string `json:"host"`             // see HostRule; no address
	Header string `json:"header,omitempty"` // the header, and what comes before the secret, as in "Authorization: Bearer"
	Basic  string `json:"basic,omitempty"`  // the user of HTTP's basic authentication, whose password is the secret
	Query  string `json:"query,omitempty"`  // the parameter of the URL
}

// SecretRule is what the settings allow of a secret.
type SecretRule struct {
	Hosts []string // see HostRule; no address
	As    []string // forms, as Credential.Form returns them; empty: any
}

const (
	maxCredentials = 16
	// MaxSecretHosts is how many hosts a secret may have.
	MaxSecretHosts = 16

	formHeader, formBasic, formQuery = "header ", "basic", "query "
)

var (
	secretName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	headerText = regexp.MustCompile(`^([A-Za-z0-9-]{1,64})(: [!-~]([ -~]{0,62}[!-~])?)?$`)
	basicUser  = regexp.MustCompile(`^[!-9;-~]{1,128}$`)
	queryName  = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,64}$`)
)

// notHeaders are headers of the connection, and headers that servers commonly send back.
var notHeaders = regexp.MustCompile(`^(Host|Connection|Upgrade|Te|Trailer|Transfer-Encoding|Expect|Range|Origin|Referer|User-Agent|Via|Forwarded|` +
	`Keep-Alive|Date|Traceparent|(Proxy|Content|Accept|If|Sec|Access-Control|X-Forwarded|X-Request|X-Correlation)(-.*)?)$`)

// Form is how the secret is sent: "header X-Key", "header Authorization: Bearer", "basic" or "query
// key".
func (c Credential) Form() string {
	switch {
	case c.Header != "":
		name, before, more := strings.Cut(c.Header, ":")
		if name = http.CanonicalHeaderKey(name); more {
			name += ":" + before
		}
		return formHeader + name
	case c.Basic != "":
		return formBasic
	}
	return formQuery + c.Query
}

// ParseForm returns a form as Credential.Form does, or why the text is none.
func ParseForm(text string) (form, why string) {
	c := Credential{Secret: "x", Host: "example.org"}
	switch {
	case text == formBasic:
		c.Basic = "x"
	case strings.HasPrefix(text, formHeader):
		c.Header = text[len(formHeader):]
	case strings.HasPrefix(text, formQuery):
		c.Query = text[len(formQuery):]
	default:
		return "", fmt.Sprintf("%q is none of \"header NAME\", \"header NAME: TEXT\", \"basic\" and \"query NAME\"", whole.Shorten(text))
	}
	return c.Form(), c.check()
}

// IsSecretName reports whether a secret may have this name.
func IsSecretName(name string) bool { return secretName.MatchString(name) }

// CheckSecretHost says why a secret cannot be for a host; "" if it can.
func CheckSecretHost(host string) string {
	rule, err := ParseHostRule(host)
	switch {
	case err != nil:
		return err.Error()
	case rule.addr.IsValid():
		return fmt.Sprintf("%q is an address; secrets go to hosts with a name, whose certificate tells who they are", whole.Shorten(host))
	}
	return ""
}

// check says why the entry makes no sense; "" if it does.
func (c Credential) check() string {
	forms := 0
	for _, text := range []string{c.Header, c.Basic, c.Query} {
		if text != "" {
			forms++
		}
	}
	name, _, _ := strings.Cut(c.Header, ":")
	switch {
	case !secretName.MatchString(c.Secret):
		return fmt.Sprintf("%q is no name of a secret; the operator names them in sandbox.secrets", whole.Shorten(c.Secret))
	case forms != 1:
		return "must have one of header, basic and query"
	case c.Header != "" && !headerText.MatchString(c.Header):
		return fmt.Sprintf("%q is no header; write a name such as X-Api-Key, or a name and what comes before the secret, such as "+
			"\"Authorization: Bearer\"", whole.Shorten(c.Header))
	case notHeaders.MatchString(http.CanonicalHeaderKey(name)):
		return fmt.Sprintf("the header %q has another meaning; use one for credentials, such as Authorization", whole.Shorten(name))
	case c.Basic != "" && !basicUser.MatchString(c.Basic):
		return fmt.Sprintf("%q is no user of basic authentication; use up to 128 visible characters of ASCII without a colon", whole.Shorten(c.Basic))
	case c.Query != "" && !queryName.MatchString(c.Query):
		return fmt.Sprintf("%q is no parameter; use letters, digits and . _ ~ -", whole.Shorten(c.Query))
	}
	return CheckSecretHost(c.Host)
}

// Add adds the secret's value to a request, in place of what the job has sent.
func (c Credential) Add(r *http.Request, value string) {
	switch {
	case c.Header != "":
		name, before, _ := strings.Cut(c.Header, ":")
		r.Header.Set(name, strings.TrimPrefix(before+" ", " ")+value)
	case c.Basic != "":
		r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.Basic+":"+value)))
	default:
		params := slices.DeleteFunc(strings.Split(r.URL.RawQuery, "&"), func(param string) bool {
			name, _, _ := strings.Cut(param, "=")
			plain, err := url.QueryUnescape(name)
			return param == "" || err != nil || plain == c.Query
		})
		r.URL.RawQuery = strings.Join(append(params, c.Query+"="+url.QueryEscape(value)), "&")
	}
}

// minHidden is the length in bytes from which a value, and not a word, is hidden.
const minHidden = 8

// Hide returns a text in which the secret's name stands for its value, as Add writes it or as the
// value is.
func (c Credential) Hide(text, value string) string {
	if len(value) < minHidden {
		return text
	}
	for _, form := range []string{
		value, url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte(c.Basic + ":" + value)),
	} {
		text = strings.ReplaceAll(text, form, "secret-"+c.Secret)
	}
	return text
}

// within reports whether an entry adds no more than another one.
func (c Credential) within(other Credential) bool {
	host, err := ParseHostRule(c.Host)
	theirs, otherErr := ParseHostRule(other.Host)
	c.Host, other.Host = "", ""
	return c == other && err == nil && otherErr == nil && theirs.covers(host)
}

// allows reports whether a secret may be added as the entry says.
func (s SecretRule) allows(c Credential) bool {
	return (len(s.As) == 0 || slices.Contains(s.As, c.Form())) && len(uncovered(HostRules([]string{c.Host}), HostRules(s.Hosts))) == 0
}

// netCredentials is the field of the secrets. There are none by default; a manifest and a request
// ask for what the settings allow, and a request for no more than a manifest with the list.
type netCredentials struct {
	common[[]Credential, []string]
}

func (netCredentials) replaces() bool { return false }

func (netCredentials) ask(v *Values, l *Layer) {
	l.NetCredentials = append([]Credential{}, v.NetCredentials...)
}

func (netCredentials) check(l *Layer) string {
	if len(l.NetCredentials) > maxCredentials {
		return fmt.Sprintf("has %d entries, and %d are allowed", len(l.NetCredentials), maxCredentials)
	}
	for _, c := range l.NetCredentials {
		if why := c.check(); why != "" {
			return why
		}
	}
	return ""
}

func (n netCredentials) base(r *Resolver, _ Host, s *Snapshot) {
	f := Field{Layer: LayerDefault, Ceiling: append([]string{}, slices.Sorted(maps.Keys(r.secrets))...), CeilingFrom: LayerDefault}
	if len(r.secrets) > 0 {
		f.CeilingFrom = LayerSettings
	}
	n.set(s, []Credential{}, f)
}

func (n netCredentials) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	if l.NetCredentials == nil {
		return nil
	}
	f := s.Fields[n.public]
	for _, c := range l.NetCredentials {
		why := ""
		rule, known := s.secrets[c.Secret]
		switch {
		case f.Layer == LayerManifest && !slices.ContainsFunc(s.Values.NetCredentials, c.within):
			why = "the skill's manifest does not have that entry, and a request can only narrow its list; " + askFor(layer) + " less"
		case f.Layer == LayerManifest:
		case !known:
			why = "there is no such secret; " + askFor(layer) + " one that the operator has in sandbox.secrets"
		case !rule.allows(c):
			why = fmt.Sprintf("this secret is for %s; %s that, or have the operator change sandbox.secrets", rule, askFor(layer))
		case s.Values.NetMode != NetAllowlist:
			why = fmt.Sprintf("net.mode is %q; %s net.mode %q, too", s.Values.NetMode, askFor(layer), NetAllowlist)
		case len(uncovered(HostRules([]string{c.Host}), tlsRules(s.Values.NetAllow))) > 0:
			why = fmt.Sprintf("net.allow does not have the host; %s a host of net.allow", askFor(layer))
		}
		if why != "" {
			return &fault.Field{
				Field: n.public, Asked: slices.Clone(l.NetCredentials), Ceiling: f.Ceiling, Layer: layer,
				Reason: fmt.Sprintf("%s for %s as %q is not allowed: %s", c.Secret, whole.Shorten(c.Host), c.Form(), why),
			}
		}
	}
	f.Layer = layer
	n.set(s, slices.Clone(l.NetCredentials), f)
	return nil
}

// tlsRules are the rules of net.allow for hosts of secrets: one with the port 443 is enough for a
// host without a port.
func tlsRules(allow []string) []HostRule {
	rules := HostRules(allow)
	for _, r := range rules {
		if r.port == 443 {
			r.port = 0
			rules = append(rules, r)
		}
	}
	return rules
}

func (s SecretRule) String() string {
	text := whole.Shorten(strings.Join(s.Hosts, ", "))
	if len(s.As) > 0 {
		text += " as " + strings.Join(s.As, ", ")
	}
	return text
}

// Credentials returns the entries for a host and port. Only one entry of each form counts.
func (v Values) Credentials(name string, port uint16) (list []Credential) {
	for _, c := range v.NetCredentials {
		rule, err := ParseHostRule(c.Host)
		if err == nil && rule.AllowsName(name, port) &&
			!slices.ContainsFunc(list, func(earlier Credential) bool { return earlier.place() == c.place() }) {
			list = append(list, c)
		}
	}
	return list
}

// place is the part of a request that the credential replaces.
func (c Credential) place() string {
	if c.Basic != "" {
		return formHeader + "Authorization"
	}
	place, _, _ := strings.Cut(c.Form(), ":")
	return place
}
