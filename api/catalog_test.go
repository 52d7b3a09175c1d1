package api

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"secbox/api/content"
	"secbox/skills"
)

// TestCatalogIsEncodedOnce for each snapshot.
func TestCatalogIsEncodedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	catalog, err := skills.Open(skills.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var pages catalogPages
	ask := func() (list, withBroken content.Page) {
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
	if &list.Body()[0] != &again.Body()[0] || &broken.Body()[0] != &brokenAgain.Body()[0] || list.ETag() == broken.ETag() {
		t.Error("the same catalog was encoded twice")
	}
	catalog.Reload()
	if after, _ := ask(); &list.Body()[0] != &after.Body()[0] {
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
	if after.ETag() != list.ETag() || brokenAfter.ETag() == broken.ETag() {
		t.Error("one more broken folder changes the list of those who asked for it, and no other")
	}
}
