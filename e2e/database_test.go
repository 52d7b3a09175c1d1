package e2e

import (
	"sync"
	"testing"

	"secbox/settings"
	"secbox/store"
)

// lazyDatabase is a server's database as a second process opens it, when a test first asks for it.
type lazyDatabase struct {
	settings settings.Settings
	cleanup  testing.TB

	once sync.Once
	db   store.Database
	err  error
}

func newLazyDatabase(t testing.TB, s settings.Settings) *lazyDatabase {
	return &lazyDatabase{settings: s, cleanup: t}
}

// database is the server's, opened beside it. It is closed when the test that started the server
// ends.
func (s *testServer) database() store.Database {
	s.t.Helper()
	d := s.db
	d.once.Do(func() {
		if d.db, d.err = store.Open(d.cleanup.Context(), d.settings.DatabaseURL.Reveal(), d.settings.StateDir); d.err == nil {
			d.cleanup.Cleanup(func() { _ = d.db.Close() })
		}
	})
	if d.err != nil {
		s.t.Fatal(d.err)
	}
	return d.db
}
