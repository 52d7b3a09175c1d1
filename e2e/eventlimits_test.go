package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"secbox/audit/admin"
	"secbox/store"
)

// TestFloodOfChanges: a client that makes change after change is refused, and a node that ends has
// the number of its refusals on record.
func TestFloodOfChanges(t *testing.T) {
	t.Parallel()
	s := start(t) // uses up the limit of changes, and ends
	refused := 0
	for i := range 640 {
		switch a := s.send(http.MethodPut, fmt.Sprintf("/v1/sandbox/u%d/backend", i), map[string]any{"backend": "docker"}); a.Code {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("%d %s", a.Code, a.Body)
		}
	}
	if err := s.app.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "", filepath.Join(s.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	made, err := db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.BackendChosen}, nil, 1000)
	if err != nil || refused == 0 || len(made) != 640-refused {
		t.Errorf("%d refusals, %d events, %v", refused, len(made), err)
	}
	events, err := db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.ChangesRefused}, nil, 10)
	counted := 0
	for _, e := range events { // more than one if a minute ended meanwhile
		var n int
		if _, err := fmt.Sscanf(e.Data, `{"count":%d,`, &n); err != nil || e.Actor.Type != admin.ByNode {
			t.Errorf("%+v: %v", e, err)
		}
		counted += n
	}
	if err != nil || counted != refused {
		t.Errorf("%d of %d refusals are counted: %+v, %v", counted, refused, events, err)
	}
}
