//go:build unix

package server

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"secbox/store/storetest/pgcluster"
	"secbox/store/storetest/planprobe"
)

// small are tables that may be read from end to end, and why they stay small.
var small = map[string]string{
	"nodes": "they are few", "installation": "one row", "audit_log": "one row", "audit_retention": "one row",
	"audit_log_sources": "a row for each kind of events",
}

// bounded are parts of statements that may read a whole table, or sort, and why they are bounded.
var bounded = []struct{ statement, why string }{
	{"SELECT EXISTS (SELECT 1 FROM tokens WHERE role <> 'runner')", "it ends at the first row"},
	{"DELETE FROM console_sessions WHERE token_id = $1 AND hash NOT IN", "a token has few sessions"},
	{"SELECT count(*) FROM console_sessions", "sessions.Max"},
	{
		" AS hour, status, error_reason, count(*) FROM sandbox_execs WHERE kind = 'exec' AND created_at >= ",
		"audit.Activity asks for some hours at a time, beside the pages",
	},
	{"SELECT exec_id, created_at, status, skill_id, duration_ms FROM (SELECT", "it sorts the newest"},
	{"exec_id IN (SELECT value FROM json_each(", "it sorts one page"},
	{"WITH RECURSIVE b (agent_id) AS", "it sorts one page"},
	{" FROM audit_retention", "the removals that are under way, and retention.MaxHolds"},
	{"INSERT INTO audit_holds", "retention.MaxHolds"},
	{"UPDATE sandbox_exec_jobs", "of no page; storetest has its plan"},
}

// TestPlansOfAllPages asks for every page of the console by each role, with each parameter alone
// and with all, and sends all forms. Of the statements that core-api runs meanwhile, none may read
// a table from end to end that grows with use, or sort what is not bounded.
func TestPlansOfAllPages(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		plansOfAllPages(t, "", func() {})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cluster, err := pgcluster.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cluster.Remove(); err != nil {
				t.Error(err)
			}
		})
		database, err := cluster.Database()
		if err != nil {
			t.Fatal(err)
		}
		plansOfAllPages(t, database, func() {
			u, err := url.Parse(database)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := cluster.SQL(strings.TrimPrefix(u.Path, "/"), "ANALYZE"); err != nil {
				t.Fatal(out, err)
			}
		})
	})
}

func plansOfAllPages(t *testing.T, database string, analyze func()) {
	c := startCrawl(t, database)
	probe := c.server.db.(planprobe.Database)
	at, found := map[string]string{}, []planprobe.Statement{}
	watch := func(what string, call func() error) {
		statements, err := planprobe.Watched(probe, call)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, s := range statements {
			if at[s.Text] == "" {
				at[s.Text], found = what, append(found, s)
			}
		}
	}
	watch("upload", c.upload)
	for _, r := range append(c.requests(), c.forms()...) {
		watch(r.String(), func() error { return c.ask(r) })
	}
	for _, route := range c.unvisited() {
		t.Errorf("%s never had an answer", route)
	}
	analyze()
	for _, s := range found {
		if strings.Contains(s.Text, "river_") || strings.Contains(s.Text, "LISTEN ") { // the library's own
			continue
		}
		if slices.ContainsFunc(bounded, func(b struct{ statement, why string }) bool { return strings.Contains(s.Text, b.statement) }) {
			continue
		}
		g, err := planprobe.AtBest(t.Context(), probe, s)
		if err != nil {
			t.Errorf("%s: %v", at[s.Text], err)
		}
		for _, table := range g.Whole {
			if small[table] == "" {
				t.Errorf("%s: all of %s is read\n%s\n%s", at[s.Text], table, s.Text, g.Text)
			}
		}
		if g.Sorts {
			t.Errorf("%s: sorts\n%s\n%s", at[s.Text], s.Text, g.Text)
		}
	}
	t.Log(len(found), "statements")
}
