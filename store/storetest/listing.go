package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"secbox/audit"
)

// pages walks a whole list page by page and gives the ids in the order they came.
func pages(t *testing.T, s audit.Store, f audit.Filter, limit int) []string {
	t.Helper()
	ids := []string{}
	var after *audit.Cursor
	for range 1000 {
		page, next, err := s.List(t.Context(), f, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > limit {
			t.Fatalf("%d records on a page of %d", len(page), limit)
		}
		for _, r := range page {
			ids = append(ids, r.ExecID)
		}
		if next != nil && len(page) == limit {
			t.Fatal("a full page that has looked at too many records")
		}
		if after = next; next != nil {
			continue
		}
		if len(page) < limit {
			if oldest := walk(t, s, f, limit); !slices.Equal(oldest, backwards(ids)) {
				t.Errorf("oldest first: %v; newest first: %v", oldest, ids)
			}
			return ids
		}
		last := page[len(page)-1]
		after = &audit.Cursor{CreatedAt: last.CreatedAt, ExecID: last.ExecID}
	}
	t.Fatal("the list does not end")
	return nil
}

// walk is pages from the oldest record on, with pages that end one record early.
func walk(t *testing.T, s audit.Store, f audit.Filter, limit int) []string {
	t.Helper()
	ids := []string{}
	var after *audit.Cursor
	f.OldestFirst = true
	for {
		n := 0
		next, err := s.Walk(t.Context(), f, after, limit+1, func(r audit.Record) bool {
			ids, after = append(ids, r.ExecID), &audit.Cursor{CreatedAt: r.CreatedAt, ExecID: r.ExecID}
			n++
			return n < limit
		})
		if err != nil {
			t.Fatal(err)
		}
		if next != nil {
			after = next
		} else if n < limit {
			return ids
		}
	}
}

func backwards(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

func paging(t *testing.T, f Fixture) {
	s := f.Audit()
	var want []string
	for i := range 23 {
		r := in(record(), func(r *audit.Record) { r.CreatedAt = base.Add(time.Duration(i*7%23) * time.Microsecond) })
		mustOpen(t, s, r)
	}
	all, _, err := s.List(t.Context(), audit.Filter{}, nil, 500)
	if err != nil || len(all) != 23 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	for i, r := range all {
		if i > 0 && !r.CreatedAt.Before(all[i-1].CreatedAt) {
			t.Errorf("%v comes after %v", r.CreatedAt, all[i-1].CreatedAt)
		}
		want = append(want, r.ExecID)
	}
	for _, limit := range []int{1, 4, 22, 23, 24} {
		if got := pages(t, s, audit.Filter{}, limit); !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}

	// New rows are newer than the pages, and do not change them.
	first, _, err := s.List(t.Context(), audit.Filter{}, nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, s, in(record(), func(r *audit.Record) { r.CreatedAt = base.Add(time.Hour) }))
	second, _, err := s.List(t.Context(), audit.Filter{}, &audit.Cursor{CreatedAt: first[9].CreatedAt, ExecID: first[9].ExecID}, 1)
	if err != nil || len(second) != 1 || second[0].ExecID != want[10] {
		t.Errorf("after an insertion: %v, %v; want %s", second, err, want[10])
	}

	for _, limit := range []int{0, -1} {
		if none, _, err := s.List(t.Context(), audit.Filter{}, nil, limit); err != nil || len(none) != 0 {
			t.Errorf("limit %d: %d records, %v", limit, len(none), err)
		}
	}
	for name, c := range map[string]struct {
		after audit.Cursor
		want  int
	}{
		"a cursor of nothing":              {audit.Cursor{}, 0},
		"a cursor before all time":         {audit.Cursor{CreatedAt: time.Unix(-1<<60, 0)}, 0},
		"a cursor after all time":          {audit.Cursor{CreatedAt: time.Unix(1<<60, 0), ExecID: "x"}, 24},
		"a cursor with an odd id":          {audit.Cursor{CreatedAt: base.Add(2 * time.Hour), ExecID: "\x00\xff'"}, 24},
		"a cursor that was no item's":      {audit.Cursor{CreatedAt: base.Add(time.Minute), ExecID: "no"}, 23},
		"a cursor just before its own row": {audit.Cursor{CreatedAt: base.Add(time.Hour), ExecID: "0"}, 23},
	} {
		if list, _, err := s.List(t.Context(), audit.Filter{}, &c.after, 500); err != nil || len(list) != c.want {
			t.Errorf("%s: %d records, %v; want %d", name, len(list), err, c.want)
		}
	}
}

func pagingEqualTimes(t *testing.T, f Fixture) {
	s := f.Audit()
	var want []string
	for i := range 30 {
		r := in(record(), func(r *audit.Record) { r.CreatedAt = base.Add(time.Duration(i/12) * time.Microsecond) })
		// Ids that order differently by bytes and by language.
		r.ExecID = fmt.Sprintf("%c%02d", "aBé-Z_z"[i%7], (i*13)%30)
		mustOpen(t, s, r)
		want = append(want, fmt.Sprintf("%d%s", i/12, mustGet(t, s, r.ExecID).ExecID))
	}
	slices.Sort(want)
	slices.Reverse(want)
	for i := range want {
		want[i] = want[i][1:]
	}
	for _, limit := range []int{1, 7, 12, 50} {
		if got := pages(t, s, audit.Filter{TaskID: "t1"}, limit); !slices.Equal(got, want) {
			t.Errorf("limit %d:\n got %v\nwant %v", limit, got, want)
		}
	}
}

// variants are records that differ from record() in one field each, and the filter that finds only
// that one.
func variants() map[string]struct {
	change func(*audit.Record)
	filter audit.Filter
} {
	return map[string]struct {
		change func(*audit.Record)
		filter audit.Filter
	}{
		"task":         {func(r *audit.Record) { r.TaskID = "T1" }, audit.Filter{TaskID: "T1"}},
		"project":      {func(r *audit.Record) { r.ProjectID = "demo2" }, audit.Filter{ProjectID: "demo2"}},
		"workspace":    {func(r *audit.Record) { r.ProjectID = "agent~user" }, audit.Filter{ProjectID: "agent~user"}},
		"conversation": {func(r *audit.Record) { r.ConversationID = "c2" }, audit.Filter{ConversationID: "c2"}},
		"skill":        {func(r *audit.Record) { r.SkillID = "a.b" }, audit.Filter{SkillID: "a.b"}},
		"version":      {func(r *audit.Record) { r.SkillDigest = "d2" }, audit.Filter{SkillDigest: "d2"}},
		"machine":      {func(r *audit.Record) { r.Runner = "desk" }, audit.Filter{Runner: "desk"}},
		"trace":        {func(r *audit.Record) { r.TraceID = "7e" }, audit.Filter{TraceID: "7e"}},
		"replay":       {func(r *audit.Record) { r.ReplayOf = "R1" }, audit.Filter{ReplayOf: "R1"}},
		"inputs kept":  {func(r *audit.Record) { r.InputsKept = audit.Kept }, audit.Filter{InputsKept: true}},
		"kind":         {func(r *audit.Record) { r.Kind = audit.KindChange }, audit.Filter{Kind: audit.KindChange}},
		"backend":      {func(r *audit.Record) { r.Backend = audit.BackendRemote }, audit.Filter{Backend: audit.BackendRemote}},
		"user":         {func(r *audit.Record) { r.UserID = "u%" }, audit.Filter{UserID: "u%"}},
		"status":       {func(r *audit.Record) { r.Status = audit.OOMKilled }, audit.Filter{Statuses: []audit.Status{audit.OOMKilled}}},
		"agent":        {func(r *audit.Record) { r.AgentID = "a2" }, audit.Filter{AgentID: "a2"}},
		"reason":       {func(r *audit.Record) { r.ErrorReason = audit.DiskLimit }, audit.Filter{ErrorReason: audit.DiskLimit}},
		"statuses": {
			func(r *audit.Record) { r.Status = audit.Lost },
			audit.Filter{Statuses: []audit.Status{audit.Lost, audit.Queued, audit.Canceled}},
		},
		"network":   {func(r *audit.Record) { r.NetConnections, r.NetDenied = 1, 1 }, audit.Filter{Network: audit.NetworkDenied}},
		"exit code": {func(r *audit.Record) { r.ExitCode = new(7) }, audit.Filter{ExitCodeNot: new(0)}},
		"requester": {func(r *audit.Record) { r.RequestedBy = "loopback" }, audit.Filter{RequestedBy: "loopback"}},
		"id":        {func(r *audit.Record) { r.ExecID = "e9" }, audit.Filter{ExecIDs: []string{"none", "e9"}}},
		"since":     {func(r *audit.Record) { r.CreatedAt = base.Add(time.Hour) }, audit.Filter{Since: base.Add(time.Hour)}},
		"until":     {func(r *audit.Record) { r.CreatedAt = base.Add(-time.Hour) }, audit.Filter{Until: base}},
		"projects":  {func(r *audit.Record) { r.ProjectID = "p9" }, audit.Filter{Projects: []string{"none", "p9"}}},
		"agents":    {func(r *audit.Record) { r.AgentID = "a9" }, audit.Filter{Agents: []string{"a9", "none"}}},
		"users":     {func(r *audit.Record) { r.UserID = "u9" }, audit.Filter{Users: []string{"u9"}}},
	}
}

func filters(t *testing.T, f Fixture) {
	s := f.Audit()
	stored := func() []audit.Record {
		records, _, err := s.List(t.Context(), audit.Filter{}, nil, 500)
		if err != nil {
			t.Fatal(err)
		}
		return records
	}
	pages := func(t *testing.T, s audit.Store, f audit.Filter, limit int) []string {
		t.Helper()
		listed := pages(t, s, f, limit)
		matching := []string{}
		for _, r := range stored() {
			if f.Matches(r) {
				matching = append(matching, r.ExecID)
			}
		}
		slices.Sort(matching)
		if !slices.Equal(matching, slices.Sorted(slices.Values(listed))) {
			t.Errorf("%+v matches %v, and lists %v", f, matching, listed)
		}
		return listed
	}
	ids := map[string]string{}
	for name, v := range variants() {
		r := in(record(), v.change)
		mustOpen(t, s, r)
		ids[name] = r.ExecID
	}
	for name, v := range variants() {
		if got := pages(t, s, v.filter, 2); !slices.Equal(got, []string{ids[name]}) {
			t.Errorf("%s: %v, want only %s", name, got, ids[name])
		}
	}
	if got := pages(t, s, audit.Filter{}, 5); len(got) != len(ids) {
		t.Errorf("without a filter: %d of %d", len(got), len(ids))
	}

	// The lists of several statuses are merged in order.
	merged := audit.Filter{Statuses: []audit.Status{audit.OOMKilled, audit.Lost, audit.Running}}
	all := pages(t, s, audit.Filter{}, 500)
	if got := pages(t, s, merged, 3); !slices.Equal(got, all) {
		t.Errorf("several statuses: %v, want %v", got, all)
	}
	merged.Summary = true
	light, _, err := s.List(t.Context(), merged, nil, 1)
	if err != nil || len(light) != 1 || len(light[0].Args)+len(light[0].EnvKeys)+len(light[0].Inputs) > 0 ||
		light[0].PolicySnapshot != nil || light[0].Cmd == "" {
		t.Errorf("a summary: %+v, %v", light, err)
	}
	merged.Summary, merged.Commands = false, true
	light, _, err = s.List(t.Context(), merged, nil, 1)
	if err != nil || len(light) != 1 || len(light[0].Args) == 0 || len(light[0].EnvKeys)+len(light[0].Inputs) > 0 ||
		light[0].PolicySnapshot != nil || light[0].Cmd == "" {
		t.Errorf("a command: %+v, %v", light, err)
	}

	// Two filters of different variants find nothing; all that one record has, together, finds the
	// record.
	if got := pages(t, s, audit.Filter{TaskID: "T1", SkillID: "a.b"}, 5); len(got) != 0 {
		t.Errorf("task and skill of different records: %v", got)
	}
	together := in(record(), func(r *audit.Record) {
		r.TaskID, r.ProjectID, r.ConversationID, r.SkillID, r.SkillDigest, r.UserID, r.AgentID, r.RequestedBy = "T", "P~U", "C", "S", "D",
			"U", "P", "R"
		r.Status, r.CreatedAt = audit.Timeout, base.Add(24*time.Hour)
		r.Backend, r.Runner, r.Kind = audit.BackendNone, "M", audit.KindChange
		r.ReplayOf, r.TraceID, r.InputsKept = "O", "7c", audit.Kept
	})
	mustOpen(t, s, together)
	full := audit.Filter{
		TaskID: "T", ProjectID: "P~U", ConversationID: "C", SkillID: "S", SkillDigest: "D", UserID: "U",
		Statuses: []audit.Status{audit.Timeout}, Since: together.CreatedAt,
		Until: together.CreatedAt.Add(time.Microsecond), RequestedBy: "R", Backend: audit.BackendNone, Runner: "M", Kind: audit.KindChange,
		Projects: []string{"P~U"}, Agents: []string{"P"}, Users: []string{"U"},
		ReplayOf: "O", TraceID: "7c", InputsKept: true,
	}
	if got := pages(t, s, full, 5); !slices.Equal(got, []string{together.ExecID}) {
		t.Errorf("all filters together: %v", got)
	}
	for name, change := range map[string]func(*audit.Filter){
		"task": func(f *audit.Filter) { f.TaskID = "x" }, "project": func(f *audit.Filter) { f.ProjectID = "x" },
		"conversation": func(f *audit.Filter) { f.ConversationID = "x" }, "skill": func(f *audit.Filter) { f.SkillID = "x" },
		"version": func(f *audit.Filter) { f.SkillDigest = "x" },
		"replay":  func(f *audit.Filter) { f.ReplayOf = "x" },
		"trace":   func(f *audit.Filter) { f.TraceID = "x" },
		"kind":    func(f *audit.Filter) { f.Kind = audit.KindExec },
		"backend": func(f *audit.Filter) { f.Backend = audit.BackendDocker }, "machine": func(f *audit.Filter) { f.Runner = "x" },
		"user": func(f *audit.Filter) { f.UserID = "x" }, "status": func(f *audit.Filter) { f.Statuses = []audit.Status{audit.Lost} },
		"since":     func(f *audit.Filter) { f.Since = f.Since.Add(time.Microsecond) },
		"until":     func(f *audit.Filter) { f.Until = f.Until.Add(-time.Microsecond) },
		"requester": func(f *audit.Filter) { f.RequestedBy = "x" }, "projects": func(f *audit.Filter) { f.Projects = []string{"x"} },
		"agents": func(f *audit.Filter) { f.Agents = []string{"x"} }, "users": func(f *audit.Filter) { f.Users = []string{"x"} },
	} {
		other := full
		change(&other)
		if got := pages(t, s, other, 5); len(got) != 0 {
			t.Errorf("all filters, another %s: %v", name, got)
		}
	}

	// Every pair of the filters that the record passes.
	pairs := []func(*audit.Filter){
		func(f *audit.Filter) { f.TaskID = "T" }, func(f *audit.Filter) { f.ProjectID = "P~U" },
		func(f *audit.Filter) { f.ConversationID = "C" },
		func(f *audit.Filter) { f.SkillID = "S" }, func(f *audit.Filter) { f.SkillDigest = "D" }, func(f *audit.Filter) { f.UserID = "U" },
		func(f *audit.Filter) { f.Statuses = []audit.Status{audit.Timeout} },
		func(f *audit.Filter) { f.Backend = audit.BackendNone }, func(f *audit.Filter) { f.Runner = "M" },
		func(f *audit.Filter) { f.RequestedBy = "R" }, func(f *audit.Filter) { f.Agents = []string{"P", "x"} },
		func(f *audit.Filter) { f.ReplayOf = "O" }, func(f *audit.Filter) { f.TraceID = "7c" },
		func(f *audit.Filter) { f.InputsKept = true },
	}
	for i := range pairs {
		for j := range i {
			var two audit.Filter
			pairs[i](&two)
			pairs[j](&two)
			if got := pages(t, s, two, 5); !slices.Equal(got, []string{together.ExecID}) {
				t.Errorf("%+v: %v", two, got)
			}
		}
	}
}

func scopes(t *testing.T, f Fixture) {
	s := f.Audit()
	ids := map[string]string{}
	for name, change := range map[string]func(*audit.Record){
		"demo, no user": func(r *audit.Record) { r.ProjectID, r.AgentID, r.UserID = "demo", "", "" },
		"demo, a u":     func(r *audit.Record) { r.ProjectID, r.AgentID, r.UserID = "demo", "a", "u" },
		"a~u":           func(r *audit.Record) { r.ProjectID, r.AgentID, r.UserID = "a~u", "a", "u" },
		"a~v":           func(r *audit.Record) { r.ProjectID, r.AgentID, r.UserID = "a~v", "a", "v" },
		"b~u":           func(r *audit.Record) { r.ProjectID, r.AgentID, r.UserID = "b~u", "b", "u" },
	} {
		r := in(record(), change)
		mustOpen(t, s, r)
		ids[r.ExecID] = name
	}
	for _, c := range []struct {
		name   string
		filter audit.Filter
		want   []string
	}{
		{"nil is all", audit.Filter{}, []string{"a~u", "a~v", "b~u", "demo, a u", "demo, no user"}},
		{"no project", audit.Filter{Projects: []string{}}, nil},
		{"no agent", audit.Filter{Agents: []string{}}, nil},
		{"no user", audit.Filter{Users: []string{}}, nil},
		{"one project", audit.Filter{Projects: []string{"demo"}}, []string{"demo, a u", "demo, no user"}},
		{"a workspace", audit.Filter{Projects: []string{"a~u"}}, []string{"a~u"}},
		{"one agent", audit.Filter{Agents: []string{"a"}}, []string{"a~u", "a~v", "demo, a u"}},
		{"one user", audit.Filter{Users: []string{"u"}}, []string{"a~u", "b~u", "demo, a u"}},
		{"agent and user", audit.Filter{Agents: []string{"a"}, Users: []string{"u"}}, []string{"a~u", "demo, a u"}},
		{
			"all three",
			audit.Filter{Projects: []string{"demo", "b~u"}, Agents: []string{"a", "b"}, Users: []string{"u"}},
			[]string{"b~u", "demo, a u"},
		},
		{"scope and filter", audit.Filter{Projects: []string{"demo", "a~u"}, ProjectID: "a~v"}, nil},
		{"an empty name", audit.Filter{Agents: []string{""}}, []string{"demo, no user"}},
		{"a part of a name", audit.Filter{Projects: []string{"a", "u", "a~", "demo,"}}, nil},
	} {
		var got []string
		for _, id := range pages(t, s, c.filter, 2) {
			got = append(got, ids[id])
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func sinceUntil(t *testing.T, f Fixture) {
	s := f.Audit()
	r := record()
	mustOpen(t, s, r)
	at := r.CreatedAt
	zone := time.FixedZone("somewhere", -8*3600)
	for _, c := range []struct {
		name         string
		since, until time.Time
		found        bool
	}{
		{"since itself", at, time.Time{}, true},
		{"since itself, elsewhere", at.In(zone), time.Time{}, true},
		{"since a nanosecond before", at.Add(-1), time.Time{}, true},
		{"since a nanosecond after", at.Add(1), time.Time{}, false},
		{"since a microsecond after", at.Add(1000), time.Time{}, false},
		{"until itself", time.Time{}, at, false},
		{"until a nanosecond after", time.Time{}, at.Add(1), true},
		{"until a nanosecond before", time.Time{}, at.Add(-1), false},
		{"until a microsecond after", time.Time{}, at.Add(1000), true},
		{"both", at, at.Add(1000), true},
		{"the wrong way round", at.Add(1000), at, false},
		{"the dawn of time", time.Unix(-1<<55, 0), time.Unix(1<<55, 0), true},
	} {
		if got := pages(t, s, audit.Filter{Since: c.since, Until: c.until}, 5); (len(got) == 1) != c.found {
			t.Errorf("%s: found %v, want %v", c.name, len(got) == 1, c.found)
		}
	}
}

func outlines(t *testing.T, f Fixture) {
	s := f.Audit()
	at := func(d time.Duration, status audit.Status, reason audit.Reason, token, skill, backend string, ms int64) audit.Outline {
		r := in(record(), func(r *audit.Record) {
			r.CreatedAt, r.Status, r.ErrorReason, r.RequestedBy, r.SkillID, r.Backend, r.DurationMS = base.Add(d), status, reason, token,
				skill, backend, ms
		})
		mustOpen(t, s, r)
		return audit.Outline{Status: status, ErrorReason: reason, RequestedBy: token, SkillID: skill, Backend: backend, DurationMS: ms}
	}
	later := at(2*time.Microsecond, audit.Rejected, audit.PolicyDenied, "t1", "", "", 0)
	first := at(0, audit.Succeeded, "", "t1", "a.b", "docker", 7)
	mustOpen(t, s, in(record(), func(r *audit.Record) { r.Kind = audit.KindChange }))
	middle := at(time.Microsecond, audit.Timeout, audit.ReasonTimeout, "t2 ü", "", "remote", 1<<40)
	for _, c := range []struct {
		name         string
		since, until time.Duration
		most         int
		want         []audit.Outline
	}{
		{"all", 0, time.Hour, 5, []audit.Outline{later, middle, first}},
		{"until is exclusive", 0, 2 * time.Microsecond, 5, []audit.Outline{middle, first}},
		{"since is inclusive", time.Microsecond, time.Hour, 5, []audit.Outline{later, middle}},
		{"a bound", 0, time.Hour, 2, []audit.Outline{later, middle}},
		{"the wrong way round", time.Hour, 0, 5, nil},
	} {
		var got []audit.Outline
		err := s.Outlines(t.Context(), base.Add(c.since), base.Add(c.until), c.most, func(o audit.Outline) { got = append(got, o) })
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}
