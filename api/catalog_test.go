package api

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"secbox/skills"
)

// TestTheCatalogIsEncodedOnce for each of its states, however often it is asked for.
func TestTheCatalogIsEncodedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	catalog, err := skills.Open(skills.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var pages catalogPages
	ask := func() (list, withBroken page) {
		t.Helper()
		encoded := pages.of(catalog.Now())
		list, err := encoded.list()
		if err != nil {
			t.Fatal(err)
		}
		if withBroken, err = encoded.withBroken(); err != nil {
			t.Fatal(err)
		}
		return list, withBroken
	}
	list, broken := ask()
	again, brokenAgain := ask()
	if &list.body[0] != &again.body[0] || &broken.body[0] != &brokenAgain.body[0] || list.etag == broken.etag {
		t.Error("the same catalog was encoded twice")
	}
	catalog.Reload()
	if after, _ := ask(); &list.body[0] != &after.body[0] {
		t.Error("a look at the disk that found nothing new had the catalog encoded again")
	}
	if err := os.Mkdir(filepath.Join(dir, "trial.one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "trial.one", skills.ManifestFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	catalog.Reload()
	after, brokenAfter := ask()
	if after.etag != list.etag || brokenAfter.etag == broken.etag {
		t.Error("one more broken folder changes the list of those who asked for it, and no other")
	}
}
