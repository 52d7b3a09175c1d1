package sqlite_test

import (
	"path/filepath"
	"testing"

	"secbox/store/sqlite"
	"secbox/store/storetest"
)

func BenchmarkWriting(b *testing.B) {
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "secbox.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	storetest.MeasureWriting(b, db)
}
