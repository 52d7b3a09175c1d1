package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/audit/translog/verify"
	"secbox/store/internal/row"
)

// damagedCells puts a value of another type into every column of a row. The row and all others are
// still read, and a verification names each column.
func damagedCells(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	e.unprotect(t)
	damaged := slices.Clone(row.Columns()[1:]) // all but exec_id
	if e.Kind() == "sqlite" {
		// A table without types and constraints.
		for _, statement := range []string{
			"CREATE TABLE copy AS SELECT * FROM sandbox_execs", "DROP TABLE sandbox_execs",
			"ALTER TABLE copy RENAME TO sandbox_execs",
		} {
			e.mustSQL(t, statement)
		}
		e.mustSQL(t, "CREATE TABLE kept AS SELECT * FROM sandbox_execs")
	} else {
		e.mustSQL(t, "CREATE TABLE kept AS SELECT * FROM sandbox_execs; DO $$ DECLARE c text; BEGIN FOR c IN SELECT column_name FROM "+
			"information_schema.columns"+
			" WHERE table_name = 'sandbox_execs' AND is_nullable = 'NO' AND column_name <> 'exec_id' LOOP"+
			" EXECUTE 'ALTER TABLE sandbox_execs ALTER COLUMN ' || c || ' DROP NOT NULL'; END LOOP; END $$")
	}
	var set []string
	for _, column := range damaged {
		value := "NULL"
		switch column {
		case "args", "env_keys", "inputs", "env_hmacs", "large_lists":
			value = `'"no list"'`
		case "created_at", "started_at", "ended_at":
			value = "'infinity'"
		}
		if e.Kind() == "sqlite" && value == "NULL" {
			value = "x'ff00'"
		}
		set = append(set, column+" = "+value)
	}
	e.mustSQL(t, "UPDATE sandbox_execs SET "+strings.Join(set, ", ")+" WHERE exec_id = '"+e.plain+"'")

	lines, sum, _ := e.verify(t, verify.Options{})
	slices.Sort(damaged)
	if len(lines) != len(damaged) || sum.Execs != 4 {
		t.Errorf("%d differences of %d columns, %+v", len(lines), len(damaged), sum)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, "exec "+e.plain+": "+damaged[i]+": expected ") || !strings.Contains(line, ", found ") {
			t.Errorf("%s: %q", damaged[i], line)
		}
	}
	// project and time by the first event
	if of, _, _ := e.verify(t, verify.Options{Project: "demo", Since: base}); !slices.Equal(of, lines) {
		t.Errorf("of a project: %q", of)
	}
	if e.Kind() == "postgres" {
		for _, c := range audit.Columns {
			switch c.In(&audit.Record{}).(type) {
			case **int, **int64: // may be NULL
				damaged = slices.DeleteFunc(damaged, func(column string) bool { return column == c.Name })
			}
		}
	}
	r := mustGet(t, e.Audit(), e.plain)
	if got := slices.Sorted(maps.Keys(r.Unreadable)); !slices.Equal(got, damaged) || r.ExecID != e.plain {
		t.Errorf("unreadable: %v", got)
	}
	mustBeListed(t, e.Audit(), e.queued, e.large, e.open) // created_at has no place in lists

	e.mustSQL(t, "UPDATE sandbox_execs SET created_at = (SELECT created_at FROM kept WHERE kept.exec_id = sandbox_execs.exec_id)")
	mustBeListed(t, e.Audit(), e.plain, e.queued, e.large, e.open)
	for _, statement := range map[string][]string{
		"sqlite":   {"9223372036854775807", "-9223372036854775807", "'tomorrow'", "NULL"},
		"postgres": {"'-infinity'", "'294000-01-01'"},
	}[e.Kind()] {
		e.mustSQL(t, fmt.Sprintf("UPDATE sandbox_execs SET created_at = %s WHERE exec_id = '%s'", statement, e.plain))
		mustBeListed(t, e.Audit(), e.queued, e.large, e.open)
	}
}

// mustBeListed reads the list in pages of one, in both orders.
func mustBeListed(t *testing.T, s audit.Store, want ...string) {
	t.Helper()
	slices.Sort(want)
	for _, oldest := range []bool{false, true} {
		var got []string
		for after := (*audit.Cursor)(nil); len(got) <= len(want); {
			page, _, err := s.List(t.Context(), audit.Filter{OldestFirst: oldest}, after, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			if _, err := json.Marshal(page[0]); err != nil {
				t.Error(err)
			}
			got, after = append(got, page[0].ExecID), &audit.Cursor{CreatedAt: page[0].CreatedAt, ExecID: page[0].ExecID}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
	}
}
