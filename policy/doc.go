// Package policy merges the layers of an exec's limits and permissions into one complete snapshot
// that says which layer set each field, and refuses values above a ceiling.
//
//	system default <- settings <- skill manifest <- request overrides
//
// A Layer is partial, a Snapshot is complete. For numbers a later layer replaces an earlier one, up
// to the ceiling; for fs a later layer only narrows.
//
// Read fields.go (the table that defines every field), then resolver.go and snapshot.go.
//
// The package must not know Docker or HTTP. It is pure: it reads no files and starts nothing.
package policy
