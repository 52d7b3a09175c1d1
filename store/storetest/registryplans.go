package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/store/storetest/planprobe"
)

// registryPlans: entries of 20 authors, half of them agents, and most events of one name.
func registryPlans(t *testing.T, f Fixture) {
	const rows = 6000
	series, now, text := "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s)", "n",
		"printf('%05d', n)"
	if f.Kind() == "postgres" {
		series, now, text = "generate_series(1, %d) AS s(n)", "to_timestamp(n)", "lpad(n::text, 5, '0')"
	}
	series = fmt.Sprintf(series, rows)
	digest := strings.Repeat("ab", 32)
	for _, statement := range []string{
		"INSERT INTO registry_entries (kind, name, fold, text, version, digest, description, files, bytes, agent_id, user_id, " +
			"requested_by, first_published_at, published_at)" +
			" SELECT CASE n % 2 WHEN 0 THEN 'agent' ELSE 'skill' END, 'n-' || " + text + ", 'n-' || " + text + ", 'n-' || " + text +
			" || ' does things', 1, '" + digest + "', 'does things', 1, 1, 'a'," +
			" 'u' || (n / 2 % 20), 't', " + now + ", " + now + " FROM " + series,
		"INSERT INTO registry_events (id, kind, name, version, digest, action, agent_id, user_id, requested_by, at)" +
			" SELECT 'e' || " + text + ", 'skill', CASE WHEN n % 10 = 0 THEN 'n-' || " + text + " ELSE 'n-00001' END, 1, '" + digest +
			"', 'published', 'a', 'u1', 't', " + now + " FROM " + series,
		"ANALYZE",
	} {
		if f.Kind() == "sqlite" && statement == "ANALYZE" { // core-api runs without statistics
			continue
		}
		if _, err := f.SQL(statement); err != nil {
			t.Fatal(err)
		}
	}
	author := registry.Owner{AgentID: "a", UserID: "u3"}
	for name, c := range map[string]struct {
		query registry.Query
		after string
		index string // part of its name
	}{
		"all":                  {registry.Query{Kind: catalog.Skill}, "", "registry_entries"},
		"a page in the middle": {registry.Query{Kind: catalog.Agent}, "n-03000", "registry_entries"},
		"words":                {registry.Query{Kind: catalog.Skill, Words: []string{"n-00", "things"}}, "n-00001", "registry_entries"},
		"an author's":          {registry.Query{Kind: catalog.Skill, By: author}, "", "registry_entries_author"},
		"an author's, paged":   {registry.Query{Kind: catalog.Agent, By: author}, "n-03000", "registry_entries_author"},
		"without entries": {
			registry.Query{Kind: catalog.Agent, By: registry.Owner{AgentID: "a", UserID: "none"}},
			"",
			"registry_entries_author",
		},
	} {
		p, err := planprobe.Of(t.Context(), f.Database, func() error {
			_, err := f.Registry().Entries(t.Context(), c.query, c.after, 50)
			return err
		})
		if err == nil {
			err = p.Good(0)
		}
		if err != nil || !strings.Contains(p.Indexes[0], c.index) {
			t.Errorf("%s: %v, walks %v:\n%s", name, err, p.Indexes, p.Text)
		}
	}
	for name, after := range map[string]*registry.Cursor{
		"first page":           nil,
		"a page in the middle": {At: time.Unix(3000, 0), ID: "e03000"},
	} {
		p, err := planprobe.Of(t.Context(), f.Database, func() error {
			_, err := f.Registry().Events(t.Context(), catalog.Skill, "n-00001", after, 50)
			return err
		})
		if err == nil {
			err = p.Good(planprobe.MaxBuffers)
		}
		if err != nil || p.Indexes[0] != "registry_events_name" {
			t.Errorf("events, %s: %v, walks %v:\n%s", name, err, p.Indexes, p.Text)
		}
	}
}
