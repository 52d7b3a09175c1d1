package sqlite

import (
	"context"
	"fmt"
	"time"

	"secbox/store/internal/row"
)

// clock returns the time of the database's clock, which is this host's.
func (db *DB) clock() time.Time { return db.now().UTC().Truncate(time.Microsecond) }

// newID appends random digits to the first half of a UUIDv7 with the time, so that each row gets
// another id.
func (db *DB) newID(args *row.Params) string {
	ms := fmt.Sprintf("%012x", db.clock().UnixMilli())
	return args.Add(ms[:8]+"-"+ms[8:]+"-7") + " || lower(substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1)" +
		" || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
}

// insertPins inserts for row.Pointers. SQLite has one writer, so a row that the query does not find
// cannot appear before the insert.
func (db *DB) insertPins(ctx context.Context, agentID, userID string) (had bool, added int, err error) {
	err = db.inTx(ctx, func(tx tx) error {
		had, _, err = row.One(ctx, tx.each, row.Value[bool], "SELECT "+row.HasPointers, agentID, userID)
		if err != nil {
			return err
		}
		args := row.Params{agentID, userID}
		id, now := db.newID(&args), args.Add(encodeTime(db.clock()))
		n, err := tx.exec("INSERT INTO agent_skill_registry ("+row.PointerColumns+") SELECT "+id+
			", b.agent_id, b.skill_id, $2, b.digest, b.digest, "+now+", "+now+row.FromUnpinned, args...)
		added = int(n)
		return err
	})
	return had, added, err
}
