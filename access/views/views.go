// Package views keeps the views of the history that people save under a name: the parameters of its
// page. It must not know the parameters, pages or SQL.
package views

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"secbox/fault"
)

// Bounds of saved views.
const (
	MaxPerOwner = 20
	MaxName     = 60      // characters
	MaxQuery    = 4 << 10 // bytes
)

// View is a saved view.
type View struct {
	Name  string // unique for its owner
	Query string // the parameters of the page, encoded as in its address
}

// Store is a database of views. store/sqlite and store/postgres implement it, and store/storetest
// is their common test suite. All methods are safe for concurrent use. An owner is the id of a
// token or a person. Revoking a token removes its views, and removing a person the person's.
// Methods fail with fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// List returns the views of an owner, in the order of their names by bytes.
	List(ctx context.Context, owner string) ([]View, error)

	// Save inserts a view, or replaces the owner's view of this name. fault.InvalidRequest names
	// the field name when the owner has MaxPerOwner others, the field name or query when it is out
	// of bounds. Calls at the same time may exceed MaxPerOwner by their number.
	Save(ctx context.Context, owner string, v View) error

	// Remove removes a view of an owner. Nothing happens when there is none.
	Remove(ctx context.Context, owner, name string) error
}

// Check returns fault.InvalidRequest with the fields of a view that are out of bounds.
func (v View) Check() error {
	var bad fault.Fields
	if strings.TrimSpace(v.Name) != v.Name || v.Name == "" || utf8.RuneCountInString(v.Name) > MaxName || !utf8.ValidString(v.Name) ||
		strings.ContainsFunc(v.Name, unicode.IsControl) {
		bad.Add("name", "must be 1 to %d characters without control characters, and not begin or end with a space", MaxName)
	}
	if len(v.Query) > MaxQuery || strings.ContainsFunc(v.Query, func(r rune) bool { return r <= ' ' || r > '~' }) {
		bad.Add("query", "must be at most %d bytes, encoded as in an address", MaxQuery)
	}
	return bad.Err()
}

// TooMany is the error of Save for an owner with MaxPerOwner other views.
func TooMany() error {
	return fault.BadField("name", "%d views are saved, which is the limit; remove one, or save under the name of one", MaxPerOwner)
}
