package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit/admin"
	"secbox/store/storetest/planprobe"
)

// adminPlans: most events are of one kind, a tenth of one actor, and each has its own subject.
func adminPlans(t *testing.T, f Fixture) {
	const rows = 6000
	series, at := "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s)", "n"
	if f.Kind() == "postgres" {
		series, at = "generate_series(1, %d) AS s(n)", "to_timestamp(n)"
	}
	statements := []string{"INSERT INTO admin_events (at, node_id, actor_type, actor_id, actor_name, kind, subject, data) SELECT " + at +
		", 'n1', 'token', 't' || (n % 10), 'ci', CASE WHEN n % 50 = 0 THEN 'export' ELSE 'download' END, 'exec' || n, '{}' FROM " +
		fmt.Sprintf(series, rows)}
	if f.Kind() == "postgres" { // core-api's SQLite runs without statistics
		statements = append(statements, "ANALYZE admin_events")
	}
	for _, statement := range statements {
		if _, err := f.SQL(statement); err != nil {
			t.Fatal(err)
		}
	}
	middle := &admin.Cursor{At: time.Unix(3000, 0), Seq: 3000}
	for index, filters := range map[string][]admin.Filter{
		"admin_events_newest":  {{}, {Since: time.Unix(1, 0), Until: time.Unix(5000, 0)}},
		"admin_events_kind":    {{Kind: admin.Export}, {Kind: admin.Export, Since: time.Unix(1, 0)}},
		"admin_events_actor":   {{Actor: "t3"}, {Actor: "none"}, {Actor: "t3", ActorName: "ci"}},
		"admin_events_subject": {{Subject: "exec7"}, {Subject: "exec7", Actor: "t7", Kind: admin.Download}},
	} {
		for _, filter := range filters {
			for _, after := range []*admin.Cursor{nil, middle} {
				p, err := planprobe.Of(t.Context(), f.Database, func() error {
					_, err := f.AdminEvents().List(t.Context(), filter, after, 50)
					return err
				})
				if err == nil {
					err = p.Good(planprobe.MaxBuffers)
				}
				if err != nil || f.Kind() == "sqlite" && p.Indexes[0] != index { // PostgreSQL knows which one is best
					t.Errorf("%+v after %v: %v, walks %v:\n%s", filter, after, err, p.Indexes, p.Text)
				}
			}
		}
	}
}

// adminDamaged puts a value of another type into every column of an event. The event and all others
// are still read; one without a time is in no list.
func adminDamaged(t *testing.T, f Fixture) {
	for i := range 3 {
		mustRecord(t, f.AdminEvents(), asAlice(t), admin.Download, fmt.Sprint("exec", i), map[string]any{"what": "stdout"})
	}
	columns := []string{"node_id", "actor_type", "actor_id", "actor_name", "kind", "subject", "data"}
	// without types
	value, statements := "x'ff00'", []string{
		"CREATE TABLE copy AS SELECT * FROM admin_events", "DROP TABLE admin_events",
		"ALTER TABLE copy RENAME TO admin_events",
	}
	if f.Kind() == "postgres" {
		value, statements = "NULL", []string{"ALTER TABLE admin_events DISABLE TRIGGER ALL"}
		for _, column := range append([]string{"at"}, columns...) {
			statements = append(statements, "ALTER TABLE admin_events ALTER COLUMN "+column+" DROP NOT NULL")
		}
	}
	for _, statement := range statements {
		f.mustSQL(t, statement)
	}
	events := adminEvents(t, f.AdminEvents(), admin.Filter{})
	damage := func(set string) {
		f.mustSQL(t, fmt.Sprintf("UPDATE admin_events SET %s WHERE seq = %d", set, events[1].Seq))
	}

	damage(strings.Join(columns, " = "+value+", ") + " = " + value)
	got := adminEvents(t, f.AdminEvents(), admin.Filter{})
	slices.Sort(columns)
	if len(got) != 3 || !slices.Equal(slices.Sorted(maps.Keys(got[1].Unreadable)), columns) || got[1].Data != "{}" ||
		got[1].Subject != "" || got[0].Unreadable != nil || got[2].Unreadable != nil {
		t.Fatalf("%+v", got)
	}
	for _, data := range []string{"'[1]'", "'{'", "''"} {
		damage("data = " + data)
		if got := adminEvents(t, f.AdminEvents(), admin.Filter{}); len(got) != 3 || got[1].Data != "{}" ||
			got[1].Unreadable["data"] != strings.Trim(data, "'") {
			t.Errorf("%s: %+v", data, got)
		}
	}
	times := []string{"'-infinity'", "'infinity'", "NULL"}
	if f.Kind() == "sqlite" {
		times = []string{"9223372036854775807", "-9223372036854775807", "'tomorrow'", "NULL", value}
	}
	for _, at := range times {
		damage("at = " + at)
		if got := adminEvents(t, f.AdminEvents(), admin.Filter{}); len(got) != 2 {
			t.Errorf("at %s: %+v", at, got)
		}
		if _, err := f.AdminEvents().Get(t.Context(), events[1].Seq); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
}
