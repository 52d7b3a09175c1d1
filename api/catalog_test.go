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
	if list == broken {
		t.Error("the lists with and without broken skills are equal")
	}
	encoded := pages.of(catalog.Now())
	catalog.Reload()
	if pages.of(catalog.Now()) != encoded {
		t.Error("an unchanged catalog was encoded again")
	}
	if err := os.Mkdir(filepath.Join(dir, "trial.one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "trial.one", skills.ManifestFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	catalog.Reload()
	after, brokenAfter := ask()
	if after != list || brokenAfter == broken {
		t.Error("a broken folder must change only the list with broken skills")
	}
}
