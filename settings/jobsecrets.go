package settings

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"secbox/internal/whole"
	"secbox/policy"
)

// JobSecrets are secrets that core-api adds to the requests of jobs, by name. Their values are in
// none of the settings.
type JobSecrets map[string]JobSecret

// JobSecret says where the value of a secret is, and where core-api may send it for whom.
type JobSecret struct {
	// One of these has the value.
	File    string   `yaml:"file" json:"file,omitempty"`       // absolute path
	Env     string   `yaml:"env" json:"env,omitempty"`         // name of a variable of core-api's own environment
	Command []string `yaml:"command" json:"command,omitempty"` // a program and its arguments, which prints the value

	Hosts  []string `yaml:"hosts" json:"hosts,omitempty"`   // see policy.HostRule
	Tokens []string `yaml:"tokens" json:"tokens,omitempty"` // ids or names of the tokens that may use it; none: all
	As     []string `yaml:"as" json:"as,omitempty"`         // forms, see policy.SecretRule; none: any
}

// Bounds of the secrets.
const (
	maxJobSecrets   = 64
	maxSecretTokens = 100
)

func (all JobSecrets) check(p *problems) {
	if len(all) > maxJobSecrets {
		p.addf("sandbox.secrets", "has %d secrets, more than %d; remove some", len(all), maxJobSecrets)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := "sandbox.secrets." + whole.Shorten(name)
		if !policy.IsSecretName(name) {
			p.addf(at, "is no name of a secret; use up to 32 of a-z, 0-9, _ and -, beginning with a letter or digit")
		}
		all[name].check(p, at)
	}
}

func (s JobSecret) check(p *problems, at string) {
	sources := 0
	for _, given := range []bool{s.File != "", s.Env != "", len(s.Command) > 0} {
		if given {
			sources++
		}
	}
	switch {
	case sources != 1:
		p.addf(at, "must have one of file, env and command, which is where the value is")
	case s.File != "" && !filepath.IsAbs(s.File):
		p.addf(at+".file", "must be an absolute path")
	case s.Env != "" && !variableName.MatchString(s.Env):
		p.addf(at+".env", "must be the name of a variable, such as OPENAI_API_KEY; its value is that in core-api's environment, and "+
			"never in a file")
	case len(s.Command) > 0 && !filepath.IsAbs(s.Command[0]):
		p.addf(at+".command", "must begin with the absolute path of a program")
	case len(s.Command) > maxMCPItems || slices.ContainsFunc(append(s.Command, s.File), func(text string) bool {
		return len(text) > maxMCPText || strings.ContainsRune(text, 0)
	}):
		p.addf(at, "must have text of at most %d bytes, without NUL, and at most %d items", maxMCPText, maxMCPItems)
	}
	switch {
	case len(s.Hosts) == 0:
		p.addf(at+".hosts", "is missing; list the hosts that may get the secret, such as api.example.org")
	case len(s.Hosts) > policy.MaxSecretHosts:
		p.addf(at+".hosts", "has %d hosts, more than %d; use a rule such as *.example.org for several", len(s.Hosts), policy.MaxSecretHosts)
	}
	for i, host := range s.Hosts {
		if why := policy.CheckSecretHost(host); why != "" {
			p.addf(fmt.Sprintf("%s.hosts[%d]", at, i), "%s", why)
		}
	}
	for i, form := range s.As {
		if _, why := policy.ParseForm(form); why != "" {
			p.addf(fmt.Sprintf("%s.as[%d]", at, i), "%s", why)
		}
	}
	switch {
	case s.Tokens != nil && len(s.Tokens) == 0:
		p.addf(at+".tokens", "is empty; leave it out for all tokens, or remove the secret")
	case len(s.Tokens) > maxSecretTokens || len(s.As) > maxSecretTokens:
		p.addf(at, "has more than %d tokens or forms", maxSecretTokens)
	}
}

// rules are the secrets for package policy.
func (all JobSecrets) rules() map[string]policy.SecretRule {
	rules := map[string]policy.SecretRule{}
	for name, s := range all {
		rules[name] = policy.SecretRule{Hosts: s.Hosts, As: s.As}
	}
	return rules
}

// redacted is what logs and the digest have: nothing of where the values are.
func (all JobSecrets) redacted() JobSecrets {
	out := JobSecrets{}
	for name, s := range all {
		out[name] = JobSecret{Hosts: s.Hosts, Tokens: s.Tokens, As: s.As}
	}
	return out
}

// jobSecrets reads the secrets of a file or of a variable.
func (f *fileReader) jobSecrets(key string, value *yaml.Node) (all JobSecrets, ok bool) {
	all, ok = JobSecrets{}, true
	f.entries(key, value, &ok, func(name string, secret *yaml.Node) {
		var one JobSecret
		f.section(key+"."+whole.Shorten(name), secret, &ok, &one)
		all[name] = one
	})
	return all, ok
}
