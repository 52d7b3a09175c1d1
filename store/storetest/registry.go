package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
)

var author = registry.Owner{AgentID: "a", UserID: "u"}

func entry(name string, version int) registry.Entry {
	return registry.Entry{
		Kind: catalog.Skill, Name: name, Version: version, Digest: digest(version), Description: "Counts things in " + name, Files: 3,
		Bytes:  1 << 40,
		Author: author, RequestedBy: "token", FirstPublishedAt: base, PublishedAt: base.Add(time.Duration(version) * time.Second),
	}
}

// about is an event about an entry.
func about(e registry.Entry, action registry.Action) registry.Event {
	return registry.Event{
		ID: newID(), Kind: e.Kind, Name: e.Name, Version: e.Version, Digest: e.Digest, Action: action, By: e.Author,
		RequestedBy: e.RequestedBy, At: e.PublishedAt,
	}
}

func mustPublish(t *testing.T, s registry.Store, saw int, e registry.Entry) registry.Event {
	t.Helper()
	record := about(e, registry.Published)
	if ok, err := s.Publish(t.Context(), saw, e, record); err != nil || !ok {
		t.Fatalf("Publish(%d, %s %d) = %v, %v", saw, e.Name, e.Version, ok, err)
	}
	return record
}

// hasEntry checks the entry of a name; nil: that there is none.
func hasEntry(t *testing.T, s registry.Store, kind catalog.Kind, name string, want *registry.Entry) {
	t.Helper()
	got, ok, err := s.Entry(t.Context(), kind, name)
	if err != nil || ok != (want != nil) || ok && got != *want {
		t.Errorf("Entry(%s, %.40q) = %+v, %v, %v; want %+v", kind, name, got, ok, err, want)
	}
}

func entryRoundTrip(t *testing.T, f Fixture) {
	s := f.Registry()
	for _, name := range []string{"", "x", "\x00", "\xff", strings.Repeat("x", 9000)} {
		hasEntry(t, s, catalog.Skill, name, nil)
	}
	e := entry("Grüße '; DROP TABLE registry_entries; --", 1)
	given := e
	given.PublishedAt = e.PublishedAt.Add(999).In(time.FixedZone("x", 3600)) // is kept in UTC, to the microsecond
	mustPublish(t, s, 0, given)
	hasEntry(t, s, catalog.Skill, e.Name, &e)
	hasEntry(t, s, catalog.Skill, strings.ToUpper(e.Name), &e) // some systems do not distinguish these
	hasEntry(t, s, catalog.Agent, e.Name, nil)
	hasEntry(t, f.Reopen(t).Registry(), catalog.Skill, e.Name, &e)

	odd := entry("odd", 1)
	odd.Description = "a\x00b\xff"
	mustPublish(t, s, 0, odd)
	odd.Description = "a\u2400b\ufffd"
	hasEntry(t, s, catalog.Skill, "odd", &odd)
	for by, want := range map[registry.Owner]int{author: 2, {AgentID: "a"}: 0, {AgentID: "A", UserID: "u"}: 0} {
		if n, err := s.Count(t.Context(), by); n != want || err != nil {
			t.Errorf("Count(%+v) = %d, %v", by, n, err)
		}
	}
}

func entryList(t *testing.T, f Fixture) {
	s := f.Registry()
	names := []string{"B", "a", "b-c", "zählen", "漢"}
	for i, name := range names {
		e := entry(name, 1)
		if i%2 == 1 {
			e.Author.UserID = "other"
		}
		mustPublish(t, s, 0, e)
	}
	agent := entry("a", 1)
	agent.Kind = catalog.Agent
	mustPublish(t, s, 0, agent)
	list := func(q registry.Query, after string, limit int) []string {
		t.Helper()
		found, err := s.Entries(t.Context(), q, after, limit)
		if err != nil || found == nil {
			t.Fatalf("%#v %v", found, err)
		}
		got := []string{}
		for _, e := range found {
			got = append(got, e.Name)
		}
		return got
	}
	for _, c := range []struct {
		q     registry.Query
		after string
		limit int
		want  []string
	}{
		{registry.Query{Kind: catalog.Skill}, "", 100, names},
		{registry.Query{Kind: catalog.Skill}, "", 2, []string{"B", "a"}},
		{registry.Query{Kind: catalog.Skill}, "a", 2, []string{"b-c", "zählen"}},
		{registry.Query{Kind: catalog.Skill}, "漢", 2, []string{}},
		{registry.Query{Kind: catalog.Agent}, "", 2, []string{"a"}},
		{registry.Query{Kind: catalog.Skill, Words: []string{"COUNTS", "b"}}, "", 9, []string{"B", "b-c"}},
		{registry.Query{Kind: catalog.Skill, Words: []string{"Zä"}}, "", 9, []string{"zählen"}},
		{registry.Query{Kind: catalog.Skill, Words: []string{"%"}}, "", 9, []string{}},
		{registry.Query{Kind: catalog.Skill, By: author}, "", 9, []string{"B", "b-c", "漢"}},
		{registry.Query{Kind: catalog.Skill, Words: []string{"things", "in", "b", "-"}, By: author}, "B", 9, []string{"b-c"}},
	} {
		if got := list(c.q, c.after, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%+v after %q: %q, want %q", c.q, c.after, got, c.want)
		}
	}
}

func entryVersions(t *testing.T, f Fixture) {
	s := f.Registry()
	first := entry("s", 1)
	mustPublish(t, s, 0, first)
	second := entry("s", 2)
	alike := entry("S", 1)
	for name, change := range map[string]func() (bool, error){
		"a second first version": func() (bool, error) { return s.Publish(t.Context(), 0, second, about(second, registry.Published)) },
		"a look-alike":           func() (bool, error) { return s.Publish(t.Context(), 0, alike, about(alike, registry.Published)) },
		"a later version":        func() (bool, error) { return s.Publish(t.Context(), 2, second, about(second, registry.Published)) },
		"a withdrawal of another": func() (bool, error) {
			return s.Withdraw(t.Context(), catalog.Skill, "s", 2, about(second, registry.Withdrawn))
		},
	} {
		if ok, err := change(); ok || err != nil {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	hasEntry(t, s, catalog.Skill, "s", &first)
	mustPublish(t, s, 1, second)
	hasEntry(t, s, catalog.Skill, "s", &second)
	if ok, err := s.Withdraw(t.Context(), catalog.Skill, "s", 2, about(second, registry.Withdrawn)); !ok || err != nil {
		t.Error(ok, err)
	}
	hasEntry(t, s, catalog.Skill, "s", nil)
	events, err := s.Events(t.Context(), catalog.Skill, "s", nil, 10)
	if err != nil || len(events) != 3 {
		t.Errorf("what failed has events: %+v %v", events, err)
	}
}

func entryRace(t *testing.T, f Fixture) {
	s := f.Registry()
	for version := 1; version <= 3; version++ {
		var won atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				e := entry("s", version)
				ok, err := s.Publish(t.Context(), version-1, e, about(e, registry.Published))
				if err != nil {
					t.Error(err)
				}
				if ok {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("version %d: %d won", version, won.Load())
		}
	}
	if events, err := s.Events(t.Context(), catalog.Skill, "s", nil, 100); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func entryRefused(t *testing.T, f Fixture) {
	s := f.Registry()
	for name, change := range map[string]func(*registry.Entry){
		"no name":            func(e *registry.Entry) { e.Name = "" },
		"a name with a NUL":  func(e *registry.Entry) { e.Name = "s\x00" },
		"a name of no UTF-8": func(e *registry.Entry) { e.Name = "\xff" },
		"a long name":        func(e *registry.Entry) { e.Name = strings.Repeat("x", 300) },
		"no version":         func(e *registry.Entry) { e.Version = 0 },
		"no digest":          func(e *registry.Entry) { e.Digest = "" },
		"an odd digest":      func(e *registry.Entry) { e.Digest = "sha256:" },
		"no kind":            func(e *registry.Entry) { e.Kind = "" },
		"another kind":       func(e *registry.Entry) { e.Kind = "tool" },
	} {
		bad := entry("s", 1)
		change(&bad)
		if ok, err := s.Publish(t.Context(), 0, bad, about(bad, registry.Published)); ok ||
			!fault.Is(err, fault.InvalidRequest) && !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	hasEntry(t, s, catalog.Skill, "s", nil)
}

func install(id string, state registry.State) registry.Install {
	return registry.Install{
		Owner: author, Kind: catalog.Skill, Name: "s", ID: id, State: state, Version: 1, Digest: digest(1),
		ChangedAt: base,
	}
}

func installStates(t *testing.T, f Fixture) {
	s := f.Registry()
	record := about(entry("s", 1), registry.InstallBegun)
	set := func(saw *registry.Install, want registry.Install, ok bool) {
		t.Helper()
		record.ID = newID()
		if got, err := s.SetInstall(t.Context(), saw, want, record); got != ok || err != nil {
			t.Errorf("SetInstall(%+v, %+v) = %v, %v", saw, want, got, err)
		}
	}
	is := func(from registry.Store, want *registry.Install) {
		t.Helper()
		got, ok, err := from.Install(t.Context(), author, catalog.Skill, "s")
		if err != nil || ok != (want != nil) || ok && got != *want {
			t.Errorf("%+v %v %v, want %+v", got, ok, err, want)
		}
	}
	is(s, nil)
	begun, done, again := install("1", registry.Installing), install("1", registry.Installed), install("2", registry.Installing)
	set(&begun, begun, false)
	set(nil, begun, true)
	is(s, &begun)
	set(nil, again, false)
	set(&done, again, false)
	set(&again, done, false)
	set(&begun, done, true)
	is(f.Reopen(t).Registry(), &done)
	set(&done, again, true)
	is(s, &again)
	for _, o := range []registry.Owner{{AgentID: "A", UserID: "u"}, {AgentID: "a"}, {}} {
		if got, ok, err := s.Install(t.Context(), o, catalog.Skill, "s"); ok || err != nil {
			t.Errorf("%+v has %+v %v", o, got, err)
		}
	}
	if events, err := s.Events(t.Context(), catalog.Skill, "s", nil, 100); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func installRace(t *testing.T, f Fixture) {
	s := f.Registry()
	var saw *registry.Install
	for round := range 3 {
		var won atomic.Pointer[registry.Install]
		var wins atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				want := install(fmt.Sprint(round, "-", i), registry.Installing)
				ok, err := s.SetInstall(t.Context(), saw, want, about(entry("s", 1), registry.InstallBegun))
				if err != nil {
					t.Error(err)
				}
				if ok {
					wins.Add(1)
					won.Store(&want)
				}
			})
		}
		all.Wait()
		if wins.Load() != 1 {
			t.Fatalf("round %d: %d won", round, wins.Load())
		}
		saw = won.Load()
	}
}

func registryEvents(t *testing.T, f Fixture) {
	s := f.Registry()
	var want []registry.Event
	for version := 1; version <= 5; version++ {
		e := entry("s", version)
		e.PublishedAt = base.Add(time.Duration(version/2) * time.Second) // some at the same time
		want = append(want, mustPublish(t, s, version-1, e))
	}
	mustPublish(t, s, 0, entry("other", 1))
	slices.Reverse(want)
	var got []registry.Event
	var after *registry.Cursor
	for {
		page, err := s.Events(t.Context(), catalog.Skill, "s", after, 2)
		if err != nil || page == nil {
			t.Fatalf("%#v %v", page, err)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		last := page[len(page)-1]
		after = &registry.Cursor{At: last.At, ID: last.ID}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func immutableRegistryEvents(t *testing.T, f Fixture) {
	s := f.Registry()
	record := mustPublish(t, s, 0, entry("s", 1))
	statements := []string{"UPDATE registry_events SET action = 'withdrawn'", "DELETE FROM registry_events"}
	if f.Kind() == "postgres" {
		statements = append(statements, "TRUNCATE registry_events")
	} else {
		statements = append(statements, "INSERT OR REPLACE INTO registry_events SELECT * FROM registry_events")
	}
	for _, statement := range statements {
		if _, err := f.SQL(statement); err == nil {
			t.Errorf("%s was not refused", statement)
		}
	}
	if events, err := s.Events(t.Context(), catalog.Skill, "s", nil, 10); err != nil || len(events) != 1 || events[0] != record {
		t.Errorf("%+v %v", events, err)
	}
}
