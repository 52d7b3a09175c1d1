package store

import (
	"context"
	"path/filepath"
	"strings"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/fault"
	"secbox/images/catalog"
	"secbox/packages/registry"
	"secbox/runner/jobs"
	"secbox/runner/webhooks"
	"secbox/sandbox"
	"secbox/skills"
	"secbox/store/postgres"
	"secbox/store/sqlite"
)

// File is the name of the SQLite database in the state dir.
const File = "secbox.db"

// Database is an open, migrated database.
type Database interface {
	Audit() audit.Store
	Jobs() jobs.Store
	Nodes() nodes.Store
	Samples() samples.Store
	Connections() audit.Connections
	Webhooks() webhooks.Store
	Carrier() jobs.Carrier // nil: the database is for one node
	Tokens() tokens.Store
	Skills() skills.Registry
	Sandboxes() sandbox.Choices
	Registry() registry.Store
	TransparencyLog() translog.Store
	AdminEvents() admin.Store
	Limits() *admin.Limits // of the events that all these stores insert
	Retention() retention.Store
	Sessions() sessions.Store
	Views() views.Store
	OwnImages() catalog.Store
	Kind() string // "sqlite" or "postgres"
	Close() error // waits for running calls; safe to call twice
}

// Open opens and migrates. An empty URL means the SQLite file in the state dir, which must exist.
// It fails with fault.InvalidSettings when the URL is not PostgreSQL's, and with
// fault.DatabaseUnavailable when the database cannot be used; errors never contain the password.
func Open(ctx context.Context, databaseURL, stateDir string) (Database, error) {
	if databaseURL == "" {
		db, err := sqlite.Open(ctx, filepath.Join(stateDir, File))
		if err != nil {
			return nil, err
		}
		return db, nil
	}
	if !strings.HasPrefix(databaseURL, "postgres://") && !strings.HasPrefix(databaseURL, "postgresql://") {
		bad := fault.New(fault.InvalidSettings,
			"database_url must begin with postgres:// or postgresql://; leave it empty for the embedded database")
		bad.Fields = []fault.Field{{Field: "database_url", Reason: "must begin with postgres:// or postgresql://"}}
		return nil, bad
	}
	db, err := postgres.Open(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	return db, nil
}
