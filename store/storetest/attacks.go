package storetest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit/export"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/audit/translog/verify"
)

// attack changes a database past this program. Its statements are for both databases, or for one in
// sqlite or postgres.
type attack struct {
	name       string
	statements []string
	sqlite     []string
	postgres   []string
	run        func(t *testing.T, e evidence, kept *verify.Kept) verify.Options // in addition; nil: none

	says   []string // each in a line; PLAIN, QUEUED, LARGE and OPEN are the ids
	others bool     // other execs may be named, too: a log that stands still for a minute lacks their events
}

// event selects an event of an exec, by its name in attack.says.
func event(id, kind string) string {
	return "(SELECT seq FROM sandbox_exec_events WHERE exec_id = '" + id + "' AND kind = '" + kind + "')"
}

// insertBefore inserts administrative events with numbers that no event has.
func insertBefore(at, option string) string {
	return "INSERT INTO admin_events (seq, at, node_id, actor_type, actor_id, actor_name, kind, subject, data) " + option +
		" SELECT seq, " + at + ", 'n1', 'command', '', 'root', 'token_revoked', 't', '{}' FROM (SELECT -9223372036854775808 AS seq UNION " +
		"ALL SELECT -5 UNION ALL SELECT -4 UNION ALL SELECT 0) AS numbers"
}

func attacks() []attack {
	return []attack{
		{
			name: "a column of a row", statements: []string{"UPDATE sandbox_execs SET exit_code = 7 WHERE exec_id = 'PLAIN'"},
			says: []string{"exec PLAIN: exit_code: expected "},
		},
		{
			name: "a large list of a row", statements: []string{`UPDATE sandbox_execs SET args = '["y"]' WHERE exec_id = 'LARGE'`},
			says: []string{"exec LARGE: args: expected "},
		},
		{
			name: "the row of an open exec", statements: []string{"UPDATE sandbox_execs SET cmd = 'evil' WHERE exec_id = 'OPEN'"},
			says: []string{`exec OPEN: cmd: expected "bash", found "evil"`},
		},
		{
			name:       "the row of an open exec, before its end is written from it",
			statements: []string{"UPDATE sandbox_execs SET cmd = 'evil' WHERE exec_id = 'OPEN'"},
			run: func(t *testing.T, e evidence, _ *verify.Kept) verify.Options {
				if _, err := e.Audit().Close(t.Context(), ended(mustGet(t, e.Audit(), e.open))); err != nil {
					t.Fatal(err)
				}
				logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
				return verify.Options{}
			},
			says: []string{"exec OPEN: history: expected possible events, found event 3 changes cmd"},
		},
		{
			name: "a row that is hostile to terminals",
			statements: []string{"UPDATE sandbox_execs SET detail = 'x' || CHR(27) || '[2J' || CHR(10) || 'exec y: no difference' WHERE " +
				"exec_id = 'PLAIN'"}, says: []string{`exec PLAIN: detail: expected `},
		},
		{name: "an event", statements: []string{"UPDATE sandbox_exec_events SET node_id = 'other' WHERE seq = " + event("QUEUED",
			"started")}, says: []string{"exec QUEUED: event 5 (started): expected entry 4, "}},
		{
			name: "an event and its row", statements: []string{
				"UPDATE sandbox_exec_events SET data = replace(data, '\"cwd\"', '\"cwe\"') WHERE seq = " + event("PLAIN", "ended"),
			}, says: []string{"exec PLAIN: event 3 (ended): expected entry 2, "},
		},
		{
			name: "an event is no JSON", statements: []string{"UPDATE sandbox_exec_events SET data = '{' WHERE seq = " + event("PLAIN",
				"ended")},
			says: []string{
				"exec PLAIN: event 3 (ended): expected entry 2, ",
				"exec PLAIN: history: expected possible events, found the record of event 3 cannot be read",
			},
		},
		{
			name: "lists of a row are null, and have other members",
			statements: []string{`UPDATE sandbox_execs SET env_keys = 'null', ` +
				`inputs = '[{"path": "main.py", "size": 8, "sha256": "00ff", "x": 1}]' WHERE exec_id = 'PLAIN'`},
			says: []string{
				`exec PLAIN: env_keys: expected ["A","B"], found null, which is not a value`,
				"exec PLAIN: inputs: expected ",
			},
		},
		{
			name: "a row is deleted", statements: []string{"DELETE FROM sandbox_execs WHERE exec_id = 'QUEUED'"},
			says: []string{"exec QUEUED: row: expected the row of 3 events, found none"},
		},
		{
			name: "an event is deleted", statements: []string{"DELETE FROM sandbox_exec_events WHERE seq = " + event("QUEUED", "started")},
			says: []string{"exec QUEUED: history: ", "log: entry 4: expected 1 event, found none"},
		},
		{
			name:       "the last event is deleted",
			statements: []string{"DELETE FROM sandbox_exec_events WHERE seq = " + event("PLAIN", "ended")},
			says:       []string{"exec PLAIN: status: expected ", "log: entry 2: "},
		},
		{
			name: "an exec is deleted", statements: []string{
				"DELETE FROM sandbox_execs WHERE exec_id = 'PLAIN'",
				"DELETE FROM sandbox_exec_events WHERE exec_id = 'PLAIN'",
			},
			says: []string{"log: entries 0 to 2: expected 3 events, found none"},
		},
		{
			name: "an event is inserted", statements: []string{"INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) " +
				"SELECT exec_id, kind, at, node_id, data FROM sandbox_exec_events WHERE seq = " + event("PLAIN", "ended")},
			says: []string{"exec PLAIN: history: "},
		},
		{
			name: "an event is inserted that the log does not have yet",
			statements: []string{"INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) SELECT exec_id, kind, at, node_id, " +
				"data FROM sandbox_exec_events WHERE seq = " + event("PLAIN", "ended")},
			run: func(_ *testing.T, _ evidence, kept *verify.Kept) verify.Options {
				return verify.Options{Kept: kept, NewOnly: true}
			},
			says: []string{"exec PLAIN: history: "},
		},
		{
			name: "the log is stopped",
			statements: []string{"INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) SELECT exec_id, kind, at, node_id, " +
				"data FROM sandbox_exec_events WHERE seq = " + event("PLAIN", "ended")},
			sqlite: []string{"UPDATE sandbox_exec_events SET at = 1 WHERE seq > 12", "UPDATE audit_log SET signed_at = 1"},
			postgres: []string{
				"UPDATE sandbox_exec_events SET at = '2020-01-01' WHERE seq > 12",
				"UPDATE audit_log SET signed_at = '2020-01-01'",
			},
			run: func(_ *testing.T, _ evidence, kept *verify.Kept) verify.Options {
				return verify.Options{Kept: kept, NewOnly: true}
			},
			says: []string{"exec PLAIN: event "},
		},
		{
			name: "a row is inserted", statements: []string{
				"CREATE TABLE copy AS SELECT * FROM sandbox_execs WHERE exec_id = 'PLAIN'",
				"UPDATE copy SET exec_id = 'new', idempotency_key = ''", "INSERT INTO sandbox_execs SELECT * FROM copy",
			},
			says: []string{"exec new: events: expected at least one, found none"},
		},
		{
			name: "a row without an id is inserted",
			statements: []string{
				"CREATE TABLE copy AS SELECT * FROM sandbox_execs WHERE exec_id = 'PLAIN'",
				"UPDATE copy SET exec_id = '', idempotency_key = ''", "INSERT INTO sandbox_execs SELECT * FROM copy",
			},
			says: []string{"log: events: expected at least one, found none"},
		},
		{
			name: "administrative events are inserted before the first", says: []string{
				"log: administrative event -9223372036854775808: expected an entry in the log, found none",
				"log: administrative event -5: expected an entry in the log, found none",
				"log: administrative event -4: expected an entry in the log, found none",
				"log: administrative event 0: expected an entry in the log, found none",
			},
			sqlite:   []string{insertBefore("1", "")},
			postgres: []string{insertBefore("now()", "OVERRIDING SYSTEM VALUE")},
		},
		{
			name: "two events are swapped", statements: []string{
				"CREATE TABLE copy AS SELECT seq, data FROM sandbox_exec_events WHERE seq IN (" + event("PLAIN", "ended") + ", " +
					event("QUEUED", "ended") + ")",
				"UPDATE sandbox_exec_events SET data = (SELECT data FROM copy WHERE copy.seq <> sandbox_exec_events.seq) WHERE seq IN " +
					"(SELECT seq FROM copy)",
			}, says: []string{"exec PLAIN: event 3 (ended)", "exec QUEUED: event "},
		},
		{
			name: "the log is truncated", statements: []string{"DELETE FROM audit_log_entries WHERE idx >= 9"},
			postgres: []string{"UPDATE audit_log_sources SET floor_seq = 12"}, // as it is after a next append
			says: []string{
				"log: entries 0 to 11: expected 12 entries, found missing",
				"exec LARGE: event 10 (corrected): expected an entry in the log, found none", "exec OPEN: event 11 (created): ",
				"exec OPEN: event 12 (started): ",
			},
		},
		{
			name: "an entry", sqlite: []string{"UPDATE audit_log_entries SET entry = zeroblob(32) WHERE idx = 1"},
			postgres: []string{"UPDATE audit_log_entries SET entry = decode(repeat('00', 32), 'hex') WHERE idx = 1"},
			says:     []string{"exec PLAIN: entry 1: ", "log: root of the log: "},
		},
		{
			name: "a salt", sqlite: []string{"UPDATE audit_log_entries SET salt = zeroblob(32) WHERE idx = 1"},
			postgres: []string{"UPDATE audit_log_entries SET salt = decode(repeat('00', 32), 'hex') WHERE idx = 1"},
			says:     []string{"exec PLAIN: event 2 (started): expected entry 1"},
		},
		{
			name: "a salt is removed", statements: []string{"UPDATE audit_log_entries SET salt = NULL WHERE idx = 1"},
			says: []string{"exec PLAIN: event 2 (started): expected a salt of 32 bytes"},
		},
		{
			name: "entries are swapped", statements: []string{
				"UPDATE audit_log_entries SET event_seq = 100 WHERE idx = 1",
				"UPDATE audit_log_entries SET event_seq = 2 WHERE idx = 2", "UPDATE audit_log_entries SET event_seq = 3 WHERE idx = 1",
			},
			says: []string{"exec PLAIN: event 2 (started): expected entry 2", "exec PLAIN: event 3 (ended): expected entry 1"},
		},
		{
			name: "a tile", sqlite: []string{"UPDATE audit_log_tiles SET hashes = CAST(zeroblob(32) || substr(hashes, 33) AS BLOB)"},
			postgres: []string{"UPDATE audit_log_tiles SET hashes = decode(repeat('00', 32), 'hex') || substr(hashes, 33)"},
			says:     []string{"exec PLAIN: hash of entry 0 in its tile: "},
		},
		{
			name: "the root", sqlite: []string{"UPDATE audit_log SET checkpoint = replace(checkpoint, substr(checkpoint, 17, 4), 'AAAA')"},
			postgres: []string{"UPDATE audit_log SET checkpoint = replace(checkpoint, substr(checkpoint, 17, 4), 'AAAA')"},
			says:     []string{"log: checkpoint: expected a signature of "},
		},
		{
			name: "another key", run: func(t *testing.T, _ evidence, _ *verify.Kept) verify.Options {
				_, other := logKey(t)
				return verify.Options{Key: other}
			}, says: []string{"log: checkpoint: expected a signature of "},
		},
		{
			name: "the log is rebuilt with another key", statements: emptyLog,
			run: func(t *testing.T, e evidence, kept *verify.Kept) verify.Options {
				file := filepath.Join(t.TempDir(), "kept.json")
				if err := verify.WriteKept(file, kept); err != nil {
					t.Fatal(err)
				}
				keyFile, key := logKey(t)
				logAll(t, sequencer(t, e.TransparencyLog(), "n1", keyFile))
				before, err := verify.ReadKept(file, key)
				if err != nil {
					t.Fatal(err)
				}
				return verify.Options{Kept: before, NewOnly: true, Key: key}
			}, says: []string{
				"log: key: expected the one under which the log was verified before, secbox/test+",
				"log: tree: expected one that extends the verified log of 12 entries",
			},
		},
		{
			name: "a hold is deleted", run: withHolds("DELETE FROM audit_holds WHERE id = 'h1'"),
			says: []string{"log: hold h1: row: expected the hold of administrative event "},
		},
		{
			name: "a hold is ended", run: withHolds("UPDATE audit_holds SET removed_at = added_at, removed_by = 'alice' WHERE id = 'h1'"),
			says: []string{"log: hold h1: removed_at: expected nothing: there is no hold_removed, found 20"},
		},
		{
			name: "a hold is of another project",
			run:  withHolds("UPDATE audit_holds SET value = 'other', added_by = 'bob' WHERE id = 'h1'"),
			says: []string{"log: hold h1: value: expected demo, found other", "log: hold h1: added_by: expected alice, found bob"},
		},
		{
			name: "a hold is added, and one that was removed holds again", run: withHolds(
				"INSERT INTO audit_holds (id, kind, value, reason, added_at, added_by) SELECT 'h3', kind, value, reason, added_at, "+
					"added_by FROM audit_holds WHERE id = 'h1'",
				"UPDATE audit_holds SET removed_at = NULL WHERE id = 'h2'"),
			says: []string{"log: hold h3: events: expected a hold_added of this row, found none", "log: hold h2: removed_at: expected 20"},
		},
		{
			name: "a hold goes with its event", run: withHolds("DELETE FROM audit_holds WHERE id = 'h1'",
				"DELETE FROM admin_events WHERE subject = 'h1'"),
			says: []string{"log: entry 12: expected 1 event, found none"},
		},
		{
			name: "the log is rebuilt with the same key", statements: emptyLog,
			run: func(t *testing.T, e evidence, kept *verify.Kept) verify.Options {
				logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
				return verify.Options{Kept: kept, NewOnly: true}
			}, says: []string{"log: tree: expected one that extends the verified log of 12 entries"},
		},
		{
			name: "the log is rolled back", statements: append(emptyLog, "DELETE FROM sandbox_exec_events WHERE seq > 3",
				"DELETE FROM sandbox_execs WHERE exec_id <> 'PLAIN'"),
			run: func(t *testing.T, e evidence, kept *verify.Kept) verify.Options {
				logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
				return verify.Options{Kept: kept, NewOnly: true}
			}, says: []string{"log: tree: expected at least the verified one: 12 entries"},
		},
		{
			name: "the state of the log is deleted", statements: []string{
				"DELETE FROM audit_log",
				"UPDATE sandbox_execs SET exit_code = 7 WHERE exec_id = 'PLAIN'",
			},
			run: func(t *testing.T, e evidence, kept *verify.Kept) verify.Options {
				var out strings.Builder
				x := export.Exporter{Records: e.Audit(), Log: translog.Log{Store: e.TransparencyLog()}, Events: e.AdminEvents()}
				counts, err := x.Write(t.Context(), &out, export.Query{Format: export.Format{Name: "jsonl"}})
				if err != nil || counts.Records != 4 || !strings.Contains(out.String(), `"problem":"no checkpoint covers these records: `) {
					t.Errorf("%+v, %v: %s", counts, err, out.String())
				}
				return verify.Options{Kept: kept, NewOnly: true}
			},
			says: []string{
				"log: state: expected a checkpoint and a size of the log, found none",
				"log: tree: expected at least the verified one: 12 entries", "exec PLAIN: exit_code: expected ",
			},
		},
		{name: "the log is emptied", statements: emptyLog, run: func(_ *testing.T, _ evidence, kept *verify.Kept) verify.Options {
			return verify.Options{Kept: kept, NewOnly: true}
		}, says: []string{"log: tree: expected at least the verified one: 12 entries"}, others: true},
	}
}

// withHolds adds two holds, removes the second, and runs statements.
func withHolds(statements ...string) func(*testing.T, evidence, *verify.Kept) verify.Options {
	return func(t *testing.T, e evidence, _ *verify.Kept) verify.Options {
		ctx := asAlice(t)
		for _, id := range []string{"h1", "h2"} {
			if _, err := e.Retention().AddHold(ctx, retention.Hold{
				ID: id, Kind: retention.HoldProject, Value: "demo", Reason: "a trial",
				AddedBy: "alice",
			}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Retention().RemoveHold(ctx, "h2", "alice"); err != nil {
			t.Fatal(err)
		}
		logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
		e.all(t, append([]string{"SELECT 1"}, statements...), strings.NewReplacer())
		return verify.Options{}
	}
}

var emptyLog = []string{
	"DELETE FROM audit_log_entries", "DELETE FROM audit_log_tiles", "UPDATE audit_log_sources SET floor_seq = 0",
	"UPDATE audit_log SET size = 0, checkpoint = '', verifier_key = '', signed_at = NULL, root = (SELECT salt FROM (SELECT root AS salt " +
		"FROM audit_log) AS x)",
}

// verifyAttacks restores the database after each attack.
func verifyAttacks(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	lines, _, kept := e.verify(t, verify.Options{})
	if len(lines) > 0 {
		t.Fatalf("before: %q", lines)
	}
	e.unprotect(t)
	var restore []string
	for _, table := range []string{
		"sandbox_execs", "sandbox_exec_events", "audit_log", "audit_log_sources", "audit_log_entries",
		"audit_log_tiles", "admin_events", "audit_holds",
	} {
		e.mustSQL(t, "CREATE TABLE kept_"+table+" AS SELECT * FROM "+table)
		insert := "INSERT INTO " + table
		if e.Kind() == "postgres" {
			insert += " OVERRIDING SYSTEM VALUE"
		}
		restore = append(restore, "DELETE FROM "+table, insert+" SELECT * FROM kept_"+table)
	}
	names := strings.NewReplacer("PLAIN", e.plain, "QUEUED", e.queued, "LARGE", e.large, "OPEN", e.open)
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			e.all(t, append(append([]string{}, a.statements...),
				map[string][]string{"sqlite": a.sqlite, "postgres": a.postgres}[e.Kind()]...), names)
			var o verify.Options
			if a.run != nil {
				o = a.run(t, e, kept)
			}
			if o.Kept == nil { // a run after one without differences
				o.Kept = kept
			}
			lines, _, again := e.verify(t, o)
			for _, says := range a.says {
				if !strings.Contains("\n"+strings.Join(lines, "\n"), "\n"+names.Replace(says)) {
					t.Errorf("%q is not in:\n%s", names.Replace(says), strings.Join(lines, "\n"))
				}
			}
			for _, line := range lines {
				if strings.ContainsAny(line, "\x1b\n") {
					t.Errorf("%q is not safe", line)
				}
				if !a.others && !strings.HasPrefix(line, "log: ") && !strings.Contains(names.Replace(fmt.Sprint(a.says)),
					strings.SplitN(line, ":", 2)[0]) {
					t.Errorf("another exec is named: %s", line)
				}
			}
			if again != nil {
				t.Error("a run with differences is remembered")
			}
			e.all(t, append([]string{"DROP TABLE IF EXISTS copy"}, restore...), names)
		})
	}
	if lines, _, _ := e.verify(t, verify.Options{Kept: kept}); len(lines) > 0 {
		t.Errorf("after the last was undone: %q", lines)
	}
}
