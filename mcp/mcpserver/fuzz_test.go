package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzSplitProject checks that the arguments without project_id are still JSON and complete.
func FuzzSplitProject(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{"project_id":"p"}`, `{"a":1,"project_id":"p","b":[{"project_id":1}]}`, `{"project_id":"p","project_id":"q"}`,
		`{"project_id":null}`, `{"project_id":5}`, `{"a":1,"a":2}`, `{"a":1e999,"b":-0}`, `{"\u0070roject_id":"p"}`, `{"a":"\ud800"}`, `{`, ` {"a" : 1 } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, arguments []byte) {
		given, rest, err := splitArguments(arguments, []string{argProject})
		project := given.project
		if err != nil {
			if rest != nil || project != "" {
				t.Errorf("a refusal with a result: %q %q", project, rest)
			}
			return
		}
		var got, want map[string]json.RawMessage
		if err := json.Unmarshal(rest, &got); err != nil {
			t.Fatalf("%q became %q: %v", arguments, rest, err)
		}
		if trimmed := strings.TrimSpace(string(arguments)); trimmed != "" && trimmed != "null" {
			if err := json.Unmarshal(arguments, &want); err != nil {
				t.Fatalf("%q was taken: %v", arguments, err)
			}
		}
		if _, left := got[argProject]; left {
			t.Errorf("project_id is left in %q", rest)
		}
		delete(want, argProject)
		if len(got) != len(want) {
			t.Errorf("%q became %q", arguments, rest)
		}
		for key, value := range want {
			if string(got[key]) != string(value) {
				t.Errorf("%q became %q", arguments, rest)
			}
		}
	})
}

// FuzzParseURI checks that parseURI is the reverse of uriOf.
func FuzzParseURI(f *testing.F) {
	const id = "exec://0199c0de-0000-7000-8000-000000000001"
	for _, seed := range []string{
		"", "exec://", id, id + "/", id + "/a", id + "/a%20b/%C3%BC", id + "/%2e%2e/x", id + "/%00", id + "/%ff", id + "/a?b",
		"file:///etc/passwd",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		execID, file, ok := parseURI(uri)
		if !ok {
			return
		}
		again, same, ok := parseURI(uriOf(execID, file))
		if !ok || again != execID || same != file {
			t.Errorf("%q is %q %q, and that is %q %q", uri, execID, file, again, same)
		}
	})
}
