package storetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/images/catalog"
)

// ownImage is an image of a name, with an id for each version.
func ownImage(name string, version int) catalog.Image {
	id := fmt.Sprintf("sha256:%064x", version)
	return catalog.Image{
		Name: name, Ref: catalog.Ref(name, id), ImageID: id, Source: catalog.Built, Base: "secbox-sandbox:latest", BaseID: "sha256:aa",
		SizeBytes: 1 << 40, Packages: 168, Recipe: "apt: [jq] # 漢\n", Dir: "/srv/images", BOM: []byte(`{"components":[]}`),
	}
}

// asCommand is the only way to own images.
func asCommand(t *testing.T) context.Context {
	return admin.By(t.Context(), admin.Actor{Type: admin.ByCommand, ID: admin.CommandID})
}

func mustPut(t *testing.T, s catalog.Store, i catalog.Image, replaces string) catalog.Image {
	t.Helper()
	stored, err := s.Put(asCommand(t), i, replaces)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// imageRoundTrip: an image comes back as it was put, each change has an event, and a version takes
// the place of another.
func imageRoundTrip(t *testing.T, f Fixture) {
	s, first, second := f.OwnImages(), ownImage("data", 1), ownImage("data", 2)
	stored := mustPut(t, s, first, "")
	if stored.CreatedAt.IsZero() || !stored.CreatedAt.Equal(stored.UpdatedAt) {
		t.Errorf("the times are %v and %v", stored.CreatedAt, stored.UpdatedAt)
	}
	first.CreatedAt, first.UpdatedAt = stored.CreatedAt, stored.UpdatedAt
	if got, err := s.Get(t.Context(), "data"); err != nil || !reflect.DeepEqual(got, first) || !reflect.DeepEqual(stored, first) {
		t.Errorf("got %+v, %v, want %+v", got, err, first)
	}
	second.Source, second.Recipe = catalog.Pulled, ""
	stored = mustPut(t, s, second, first.ImageID)
	if !stored.CreatedAt.Equal(first.CreatedAt) || stored.ImageID != second.ImageID {
		t.Errorf("the second version is %+v", stored)
	}
	mustPut(t, s, ownImage("a", 3), "")
	list, err := s.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].ImageID != second.ImageID || list[1].BOM != nil || list[1].Recipe != "" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	removed, err := s.Remove(asAlice(t), "data")
	if err != nil || removed.ImageID != second.ImageID {
		t.Errorf("removed %+v, %v", removed, err)
	}
	for _, err := range []error{second2(s.Get(t.Context(), "data")), second2(s.Remove(t.Context(), "data"))} {
		if !fault.Is(err, fault.UnknownImage) {
			t.Errorf("after the removal: %v", err)
		}
	}
	events := adminEvents(t, f.AdminEvents(), admin.Filter{Subject: "data"})
	if len(events) != 3 || events[2].Kind != admin.ImageRemoved || events[1].Kind != admin.ImageAllowed ||
		!strings.Contains(events[1].Data, first.ImageID) || !strings.Contains(events[0].Data, `"recipe_sha256"`) {
		t.Errorf("events: %q", briefs(events))
	}
}

func second2[T any](_ T, err error) error { return err }

// imageRefused: what cannot be in the table is not put, and neither is an image in the place of one
// that is not there.
func imageRefused(t *testing.T, f Fixture) {
	s, good := f.OwnImages(), ownImage("data", 1)
	for what, change := range map[string]func(*catalog.Image){
		"name":         func(i *catalog.Image) { i.Name = "../x" },
		"long name":    func(i *catalog.Image) { i.Name = strings.Repeat("a", catalog.MaxName+1) },
		"reference":    func(i *catalog.Image) { i.Ref = "secbox-sandbox:latest" },
		"id":           func(i *catalog.Image) { i.ImageID = "sha256:x" },
		"source":       func(i *catalog.Image) { i.Source = "magic" },
		"large bom":    func(i *catalog.Image) { i.BOM = []byte(`"` + strings.Repeat("a", catalog.MaxBOM) + `"`) },
		"bom":          func(i *catalog.Image) { i.BOM = []byte("x") },
		"large recipe": func(i *catalog.Image) { i.Recipe = strings.Repeat("a", catalog.MaxRecipe+1) },
	} {
		bad := good
		change(&bad)
		if _, err := s.Put(asCommand(t), bad, ""); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Put(asCommand(t), good, "sha256:other"); !fault.Is(err, fault.ImageConflict) {
		t.Errorf("in the place of none: %v", err)
	}
	mustPut(t, s, good, "")
	for _, replaces := range []string{"", "sha256:other"} {
		if _, err := s.Put(asCommand(t), ownImage("data", 2), replaces); !fault.Is(err, fault.ImageConflict) {
			t.Errorf("in the place of %q: %v", replaces, err)
		}
	}
	for n := 1; n < catalog.MaxImages; n++ {
		mustPut(t, s, ownImage(fmt.Sprint("n", n), n), "")
	}
	if _, err := s.Put(asCommand(t), ownImage("more", 1), ""); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("one more than the table may have: %v", err)
	}
	if n := len(adminEvents(t, f.AdminEvents(), admin.Filter{Kind: admin.ImageAllowed})); n != catalog.MaxImages {
		t.Errorf("%d events of %d images", n, catalog.MaxImages)
	}
}

// imageRace: of concurrent puts in the place of one version, exactly one wins.
func imageRace(t *testing.T, f Fixture) {
	s := f.OwnImages()
	first := mustPut(t, s, ownImage("data", 1), "")
	var won atomic.Int64
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			_, err := s.Put(asCommand(t), ownImage("data", n+2), first.ImageID)
			switch {
			case err == nil:
				won.Add(1)
			case !fault.Is(err, fault.ImageConflict):
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won", won.Load())
	}
}
