package catalog_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/images/catalog"
)

// rows is a store that only lists.
type rows struct {
	catalog.Store
	list  []catalog.Image
	err   error
	reads int
}

func (r *rows) List(context.Context) ([]catalog.Image, error) {
	r.reads++
	return r.list, r.err
}

// own is an image as memengine has it: the id is made from the reference.
func own(name, ref string) catalog.Image {
	return catalog.Image{Name: name, Ref: ref, ImageID: "sha256:" + ref}
}

// TestTableIsReadForUnknownNames: the first request for a new name finds it, and clients who ask
// for any name cause few readings.
func TestTableIsReadForUnknownNames(t *testing.T) {
	t.Parallel()
	now, store := time.Unix(1, 0), &rows{}
	table := catalog.NewTable(&memengine.Images{}, func() time.Time { return now })
	if names := table.Names("data"); len(names) != 0 {
		t.Errorf("before Open: %q", names)
	}
	if err := table.Open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	store.list = []catalog.Image{own("b", "b:1"), own("data", "data:1")}
	now = now.Add(time.Second)
	for _, wanted := range []string{"", "secbox-sandbox:latest"} {
		if names := table.Names(wanted); len(names) != 0 || store.reads != 1 {
			t.Errorf("%q: %q after %d readings", wanted, names, store.reads)
		}
	}
	for range 3 {
		if names := table.Names("nosuch"); !slices.Equal(names, []string{"b", "data"}) || store.reads != 2 {
			t.Errorf("%q after %d readings", names, store.reads)
		}
	}
	now, store.err = now.Add(time.Second), errors.New("away")
	if names := table.Names("other"); len(names) != 2 || store.reads != 3 {
		t.Errorf("while the database is away: %q", names)
	}
}

// TestTableResolves: a name stands for exactly the image in the table, and the error of a node
// without it says what to run.
func TestTableResolves(t *testing.T) {
	t.Parallel()
	images := &memengine.Images{}
	table := catalog.NewTable(images, time.Now)
	moved := own("moved", "moved:1")
	moved.ImageID = "sha256:another"
	if err := table.Open(t.Context(), &rows{list: []catalog.Image{own("data", "data:1"), own("gone", "gone:1"), moved}}); err != nil {
		t.Fatal(err)
	}
	images.Fail("gone:1", fault.New(fault.ImageMissing, "gone"))
	for ref, want := range map[string]string{"data": "data:1", "x:1": "x:1"} {
		if image, err := table.Resolve(t.Context(), ref); err != nil || image.Ref != want {
			t.Errorf("%s: %+v, %v", ref, image, err)
		}
	}
	for _, name := range []string{"gone", "moved"} {
		_, err := table.Resolve(t.Context(), name)
		if !fault.Is(err, fault.ImageMissing) || !strings.Contains(fault.From(err).Message, "core-api image import "+name+".tar") {
			t.Errorf("%s: %v", name, err)
		}
	}
	images.Fail("data:1", fault.New(fault.EngineUnavailable, "away"))
	if _, err := table.Resolve(t.Context(), "data"); !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("while the engine is away: %v", err)
	}
}
