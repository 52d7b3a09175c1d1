package library_test

import (
	"fmt"
	"slices"
	"testing"

	"secbox/packages/library"
)

// TestChangedIsCalled after each method that changes skills, so that catalogs show the change at
// once.
func TestChangedIsCalled(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var got []string
	f.Changed = func(o library.Owner, scope library.Scope) { got = append(got, fmt.Sprint(o.UserID, " ", scope)) }
	f.upload(alice, library.Overlay, "one", tree{"SKILL.md": "one"})
	f.edit(alice, "one", "x", "x")
	_, err := f.Promote(t.Context(), alice, "one", false)
	must(t, err)
	_, err = f.Sync(t.Context(), alice, "one", true)
	must(t, err)
	must(t, f.Delete(t.Context(), alice, "one", library.Overlay))
	must(t, f.Delete(t.Context(), alice, "one", library.Baseline))
	user := alice.UserID
	if want := []string{user + " overlay", user + " overlay", user + " baseline", user + " overlay", user + " overlay", user + " baseline"}; !slices.Equal(got,
		want) {
		t.Errorf("%q, want %q", got, want)
	}
}
