package postgres_test

import (
	"testing"

	"secbox/store/postgres"
	"secbox/store/storetest"
)

// The tests' clusters do not flush to the disk, so this measures everything else.
func BenchmarkWriting(b *testing.B) {
	db, err := postgres.Open(b.Context(), cluster.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	storetest.MeasureWriting(b, db)
}
