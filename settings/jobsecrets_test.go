package settings

import (
	"fmt"
	"strings"
	"testing"

	"secbox/fault"
)

// TestJobSecrets: what is said of where a value is stays out of logs and of the digest.
func TestJobSecrets(t *testing.T) {
	t.Parallel()
	load := func(source string) Settings {
		s, err := Load(write(t, "sandbox.secrets:\n  key: {"+source+", hosts: [api.example.org], tokens: [ci], as: [header x-key]}\n"), here(), Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	file, command := load("file: /run/hunter2"), load("command: [/bin/vault, --password, hunter2]")
	if got := command.Sandbox.Secrets["key"]; got.Command[2] != "hunter2" || got.Tokens[0] != "ci" || got.Hosts[0] != "api.example.org" {
		t.Errorf("%+v", got)
	}
	for _, shown := range []string{fmt.Sprint(command.LogValue()), fmt.Sprint(command.Redacted()), fmt.Sprint(file.LogValue())} {
		if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "api.example.org") {
			t.Errorf("shown: %s", shown)
		}
	}
	if file.Digest() != command.Digest() || file.Digest() == Default().Digest() {
		t.Errorf("digests %s %s", file.Digest(), command.Digest())
	}
}

// TestWrongJobSecrets: each mistake is reported with its key and a remedy.
func TestWrongJobSecrets(t *testing.T) {
	t.Parallel()
	const hosts = ", hosts: [a.example.org]"
	for yaml, want := range map[string]string{
		"{Key: {file: /a" + hosts + "}}":                           "sandbox.secrets.Key: is no name of a secret",
		"{a: {hosts: [a.example.org]}}":                            "sandbox.secrets.a: must have one of file, env and command",
		"{a: {file: /a, env: B" + hosts + "}}":                     "must have one of",
		"{a: {file: a" + hosts + "}}":                              "sandbox.secrets.a.file: must be an absolute path",
		"{a: {env: 'B=hunter2'" + hosts + "}}":                     "sandbox.secrets.a.env: must be the name of a variable",
		"{a: {command: [vault]" + hosts + "}}":                     "sandbox.secrets.a.command: must begin with the absolute path",
		"{a: {command: vault" + hosts + "}}":                       "line 1 of secbox.yaml: must be a list, not \"vault\"",
		"{a: {file: /a}}":                                          "sandbox.secrets.a.hosts: is missing",
		"{a: {file: /a, hosts: ['*.org']}}":                        "sandbox.secrets.a.hosts[0]: \"*.org\" allows a whole top-level domain",
		"{a: {file: /a, hosts: [192.0.2.7]}}":                      "sandbox.secrets.a.hosts[0]: \"192.0.2.7\" is an address",
		"{a: {file: /a, as: [cookie]" + hosts + "}}":               "sandbox.secrets.a.as[0]: \"cookie\" is none of",
		"{a: {file: /a, as: ['header Origin']" + hosts + "}}":      "has another meaning",
		"{a: {file: /a, tokens: []" + hosts + "}}":                 "sandbox.secrets.a.tokens: is empty",
		"{a: {value: hunter2" + hosts + "}}":                       "sandbox.secrets.a.value: line 1 of secbox.yaml: there is no such setting",
		"{a: {file: /a" + hosts + "}, a: {file: /b" + hosts + "}}": "must be a name that is there once",
		"[a]": "sandbox.secrets: line 1 of secbox.yaml: must be a section",
	} {
		_, err := Load(write(t, "sandbox.secrets: "+yaml+"\n"), here(), Overrides{})
		if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", yaml, err)
		}
	}
	_, err := Load("", here("CORE_API_SANDBOX_SECRETS=a"), Overrides{})
	if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), "must be a section") {
		t.Errorf("%v", err)
	}
}

// TestPolicyHasNoCredentials: the settings have the secrets, and ask for none.
func TestPolicyHasNoCredentials(t *testing.T) {
	t.Parallel()
	for _, d := range Describe() {
		if strings.Contains(d.Key, "credentials") || strings.HasSuffix(d.Key, "-") {
			t.Errorf("%+v", d)
		}
	}
}
