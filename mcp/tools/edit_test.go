package tools

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"secbox/internal/admission"
	"secbox/sandbox"
)

// TestEditsAreThoseOfReplaceAll: edits see the result of those before, and replace from left to
// right without overlaps.
func TestEditsAreThoseOfReplaceAll(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("aaab\né", 1000)
	edits := []Replacement{{"aa", "b", true}, {"ba", "aaaa", true}, {"é", "", true}, {"b\n", "", true}, {"aaaa", "x", true}}
	want, times := text, 0
	for _, e := range edits {
		times += strings.Count(want, e.Old)
		want = strings.ReplaceAll(want, e.Old, e.New)
	}
	got, before, replaced, err := edited(t.Context(), []byte(text), edits, "f", len(text))
	if err != nil || string(got) != want || replaced != times || before != digestOf([]byte(text)) {
		t.Errorf("%.50q after %d replacements, %v; want %.50q after %d", got, replaced, err, want, times)
	}
}

// TestEditEndsWithItsCaller: a call that waits for its turn to work ends when the caller has gone,
// and the file stays as it is.
func TestEditEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := admission.NewProcessors(1)
		working, err := admission.Begin(admission.WithProcessors(t.Context(), g, func() string { return "other" }))
		if err != nil {
			t.Fatal(err)
		}
		defer working.End()
		request, leave := context.WithCancel(t.Context())
		ctx := WithCaller(admission.WithProcessors(t.Context(), g, func() string { return "a" }), Caller{Request: request})
		f := &fake{file: "old text", size: 8}
		for name, call := range map[string]func(*Session) error{
			"edit": func(s *Session) error {
				_, err := s.Edit(ctx, EditParams{Path: "f", Edits: []Replacement{{Old: "old", New: "new"}}})
				return err
			},
			"read": func(s *Session) error { _, err := s.Read(ctx, ReadParams{Path: "f"}); return err },
			"download": func(s *Session) error {
				_, err := s.Download(ctx, DownloadParams{Path: "/workspace/f"})
				return err
			},
		} {
			ended := make(chan error)
			go func() { ended <- call(NewSession(f, sandbox.User{ID: "u", AgentID: "a"}, nil)) }()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Errorf("%s did not wait for its turn: %v", name, err)
			default:
				defer func() {
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", name, err)
					}
				}()
			}
		}
		leave()
		synctest.Wait()
		if waiting, _ := g.Load(); waiting != 0 || f.file != "old text" {
			t.Errorf("%d wait, the file has %q", waiting, f.file)
		}
	})
}
