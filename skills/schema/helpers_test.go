package schema

import (
	"context"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// problem is a finding about a schema, with its path as a JSON pointer.
type problem struct{ Pointer, Reason string }

// problemsOf compiles a schema and returns the findings.
func problemsOf(schema string) []problem {
	_, found := Compile([]byte(schema))
	var list []problem
	for _, f := range found {
		list = append(list, problem{Pointer(f.Path), f.Reason})
	}
	return list
}

// wants checks that all problems are at one place, and that one of them contains the text.
func wants(t *testing.T, problems []problem, where, text string) {
	t.Helper()
	said := false
	for _, p := range problems {
		if p.Pointer != where {
			t.Errorf("%s: %s; want it at %q", p.Pointer, p.Reason, where)
		}
		said = said || strings.Contains(p.Reason, text)
		if strings.Contains(p.Reason, "jsonschema") || strings.Contains(p.Reason, schemaURL) {
			t.Errorf("the library's name appears: %s", p.Reason)
		}
	}
	if !said {
		t.Errorf("no problem contains %q: %+v", text, problems)
	}
}

func mustCompile(t testing.TB, schema string) *Schema {
	t.Helper()
	s, found := Compile([]byte(schema))
	if found != nil {
		t.Fatalf("%+v", found)
	}
	return s
}

// explain validates a JSON text and returns one sentence per finding, as in "value.a: must be a
// string".
func explain(ctx context.Context, s *Schema, text string) ([]string, error) {
	value, unread := Parse([]byte(text))
	if unread != nil {
		return []string{unread.Reason}, nil
	}
	found, err := s.Validate(ctx, value)
	var list []string
	for _, f := range found {
		list = append(list, FieldName("value", value, f.Path)+": "+f.Reason)
	}
	return list, err
}

// wantFindings checks the sentences of explain: each begins with the wanted one, in that order.
func wantFindings(t *testing.T, s *Schema, text string, wanted ...string) {
	t.Helper()
	got, err := explain(t.Context(), s, text)
	must(t, err)
	wantSentences(t, got, wanted...)
}

func wantSentences(t *testing.T, got []string, wanted ...string) {
	t.Helper()
	if len(got) != len(wanted) {
		t.Errorf("%d findings, want %d: %q", len(got), len(wanted), got)
	}
	for n := range min(len(got), len(wanted)) {
		if !strings.HasPrefix(got[n], wanted[n]) {
			t.Errorf("finding %d is %q, want %q", n, got[n], wanted[n])
		}
	}
}
