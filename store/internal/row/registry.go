package row

import (
	"context"
	"fmt"
	"strings"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/pathadapter"
)

const (
	entryColumns = "kind, name, fold, text, version, digest, description, files, bytes, agent_id, user_id, requested_by, " +
		"first_published_at, published_at"
	installColumns = "agent_id, user_id, kind, name, id, state, version, digest, changed_at"
	eventColumns   = "id, kind, name, version, digest, action, agent_id, user_id, requested_by, at"
)

// Registry implements registry.Store.
type Registry struct {
	Database

	// Both runs two statements in one durable transaction, the second only if the first changes a
	// row, and reports whether it did. The second inserts what it selects; then returns its text,
	// with parameters numbered from first.
	Both func(ctx context.Context, change string, args []any, then func(first int) string, thenArgs []any) (changed bool, err error)
}

// insertEvent inserts an event. Its parameters are numbered from $first.
func insertEvent(first int) string {
	var values []string
	for i := range strings.Count(eventColumns, ",") + 1 {
		values = append(values, fmt.Sprintf("$%d", first+i))
	}
	return "INSERT INTO registry_events (" + eventColumns + ") SELECT " + strings.Join(values, ", ")
}

// change makes a change and inserts its event: fault.TooManyChanges beyond the limits of the token
// that asks, unless it ends what was begun. The event names the token; the context of a tool's call
// need not.
func (db Registry) change(ctx context.Context, e registry.Event, statement string, args ...any) (changed bool, err error) {
	if by := admin.Caller(e.RequestedBy, ""); !e.Action.Ends() {
		if err := db.Limits.Permit(by, admin.RegistryChanged); err != nil {
			return false, err
		}
		defer func() {
			if !changed {
				db.Limits.Return(by, admin.RegistryChanged)
			}
		}()
	}
	return db.Both(ctx, statement, args, insertEvent, []any{
		e.ID, string(e.Kind), Text(e.Name), int64(e.Version), e.Digest, string(e.Action), Text(e.By.AgentID), Text(e.By.UserID),
		Text(e.RequestedBy),
		db.stored(e.At),
	})
}

// Entry implements registry.Store.
func (db Registry) Entry(ctx context.Context, kind catalog.Kind, name string) (registry.Entry, bool, error) {
	return One(ctx, db.Query, scanEntry, "SELECT "+entryColumns+" FROM registry_entries WHERE kind = $1 AND fold = $2", string(kind),
		Text(pathadapter.FoldName(name)))
}

// Entries implements registry.Store.
func (db Registry) Entries(ctx context.Context, q registry.Query, after string, limit int) ([]registry.Entry, error) {
	statement, args := db.EntriesQuery(q, after, limit)
	return All(ctx, db.List, scanEntry, statement, args...)
}

// EntriesQuery returns the statement of Entries and its parameters.
func (db Database) EntriesQuery(q registry.Query, after string, limit int) (string, []any) {
	var args Params
	statement := "SELECT " + entryColumns + " FROM registry_entries WHERE kind = " + args.Add(string(q.Kind)) + " AND name > " +
		args.Add(Text(after))
	for _, word := range q.Words {
		statement += " AND text LIKE " + args.Add("%"+likeEscaper.Replace(strings.ToLower(Text(word)))+"%") + ` ESCAPE '\'`
	}
	if q.By != (registry.Owner{}) {
		statement += " AND agent_id = " + args.Add(Text(q.By.AgentID)) + " AND user_id = " + args.Add(Text(q.By.UserID))
	}
	return statement + " ORDER BY name LIMIT " + args.Add(int64(limit)), args
}

var likeEscaper = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`)

// Count implements registry.Store.
func (db Registry) Count(ctx context.Context, author registry.Owner) (int, error) {
	n, _, err := One(ctx, db.Query, Value[int], "SELECT count(*) FROM registry_entries WHERE agent_id = $1 AND user_id = $2",
		Text(author.AgentID), Text(author.UserID))
	return n, err
}

// Publish implements registry.Store.
func (db Registry) Publish(ctx context.Context, saw int, e registry.Entry, record registry.Event) (bool, error) {
	if err := checkEntry(e.Kind, e.Name, e.Version, e.Digest); err != nil {
		return false, err
	}
	args := []any{
		string(e.Kind), e.Name, pathadapter.FoldName(e.Name), strings.ToLower(e.Name + "\n" + Text(e.Description)), int64(e.Version),
		e.Digest,
		Text(e.Description), int64(e.Files), e.Bytes, Text(e.Author.AgentID), Text(e.Author.UserID), Text(e.RequestedBy),
		db.stored(e.FirstPublishedAt), db.stored(e.PublishedAt),
	}
	if saw == 0 {
		return db.change(ctx, record, "INSERT INTO registry_entries ("+entryColumns+
			") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING", args...)
	}
	return db.change(ctx, record,
		"UPDATE registry_entries SET fold = $3, text = $4, version = $5, digest = $6, description = $7, files = $8, bytes = $9,"+
			" agent_id = $10, user_id = $11, requested_by = $12, first_published_at = $13, published_at = $14 WHERE kind = $1 AND name = "+
			"$2 "+
			"AND version = $15",
		append(args, int64(saw))...)
}

// Withdraw implements registry.Store.
func (db Registry) Withdraw(ctx context.Context, kind catalog.Kind, name string, saw int, record registry.Event) (bool, error) {
	return db.change(ctx, record, "DELETE FROM registry_entries WHERE kind = $1 AND name = $2 AND version = $3", string(kind), Text(name),
		int64(saw))
}

// Install implements registry.Store.
func (db Registry) Install(ctx context.Context, o registry.Owner, kind catalog.Kind, name string) (registry.Install, bool, error) {
	return One(ctx, db.Query, scanInstall, "SELECT "+installColumns+
		" FROM registry_installs WHERE agent_id = $1 AND user_id = $2 AND kind = $3 AND name = $4",
		Text(o.AgentID), Text(o.UserID), string(kind), Text(name))
}

// SetInstall implements registry.Store.
func (db Registry) SetInstall(ctx context.Context, saw *registry.Install, want registry.Install, record registry.Event) (bool, error) {
	if err := checkEntry(want.Kind, want.Name, want.Version, want.Digest); err != nil {
		return false, err
	}
	args := []any{
		Text(want.Owner.AgentID), Text(want.Owner.UserID), string(want.Kind), want.Name, want.ID, string(want.State), int64(want.Version),
		want.Digest,
		db.stored(want.ChangedAt),
	}
	if saw == nil {
		return db.change(ctx, record, "INSERT INTO registry_installs ("+installColumns+
			") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING", args...)
	}
	return db.change(ctx, record, "UPDATE registry_installs SET id = $5, state = $6, version = $7, digest = $8, changed_at = $9"+
		" WHERE agent_id = $1 AND user_id = $2 AND kind = $3 AND name = $4 AND id = $10 AND state = $11",
		append(args, saw.ID, string(saw.State))...)
}

// Events implements registry.Store.
func (db Registry) Events(ctx context.Context, kind catalog.Kind, name string, after *registry.Cursor, limit int) ([]registry.Event,
	error,
) {
	statement, args := db.RegistryEventsQuery(kind, name, after, limit)
	return All(ctx, db.List, scanRegistryEvent, statement, args...)
}

// RegistryEventsQuery returns the statement of Events and its parameters.
func (db Database) RegistryEventsQuery(kind catalog.Kind, name string, after *registry.Cursor, limit int) (string, []any) {
	var args Params
	statement := "SELECT " + eventColumns + " FROM registry_events WHERE kind = " + args.Add(string(kind)) + " AND name = " +
		args.Add(Text(name))
	if after != nil {
		statement += " AND (at, id) < (" + args.Add(db.stored(after.At)) + ", " + args.Add(Text(after.ID)) + ")"
	}
	return statement + " ORDER BY at DESC, id DESC LIMIT " + args.Add(int64(limit)), args
}

func scanEntry(scan Scan) (e registry.Entry, err error) {
	var fold, text string
	err = scan((*string)(&e.Kind), &e.Name, &fold, &text, &e.Version, &e.Digest, &e.Description, &e.Files, &e.Bytes, &e.Author.AgentID,
		&e.Author.UserID,
		&e.RequestedBy, timeInto{&e.FirstPublishedAt}, timeInto{&e.PublishedAt})
	return e, err
}

func scanInstall(scan Scan) (i registry.Install, err error) {
	err = scan(&i.Owner.AgentID, &i.Owner.UserID, (*string)(&i.Kind), &i.Name, &i.ID, (*string)(&i.State), &i.Version, &i.Digest,
		timeInto{&i.ChangedAt})
	return i, err
}

func scanRegistryEvent(scan Scan) (e registry.Event, err error) {
	err = scan(&e.ID, (*string)(&e.Kind), &e.Name, &e.Version, &e.Digest, (*string)(&e.Action), &e.By.AgentID, &e.By.UserID, &e.RequestedBy,
		timeInto{&e.At})
	return e, err
}

// checkEntry refuses names and digests that the databases would change or refuse.
func checkEntry(kind catalog.Kind, name string, version int, digest string) error {
	if err := checkID("name", name); err != nil {
		return err
	}
	if version < 1 || digest == "" || !digestOrNone(digest) || kind != catalog.Skill && kind != catalog.Agent {
		return fault.New(fault.Internal, "version %d of the %s %q cannot be stored", version, kind, name)
	}
	return nil
}
