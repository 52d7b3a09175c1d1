package console_test

import (
	"context"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
)

// fakeRegistry has published skills.
type fakeRegistry struct {
	entries  []registry.Entry // by name
	events   []registry.Event // newest first, of every name
	installs []registry.Install
}

func (f *fakeRegistry) Search(_ context.Context, kind catalog.Kind, text string, _ registry.Owner, after string, limit int) ([]registry.Entry, error) {
	out := []registry.Entry{}
	for _, e := range f.entries {
		if e.Kind == kind && e.Name > after && strings.Contains(e.Name+e.Description, text) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

func (f *fakeRegistry) Entry(_ context.Context, kind catalog.Kind, name string) (registry.Entry, error) {
	i := slices.IndexFunc(f.entries, func(e registry.Entry) bool { return e.Kind == kind && e.Name == name })
	if i < 0 {
		return registry.Entry{}, fault.New(fault.UnknownEntry, "%s %q not found in the registry", kind, name)
	}
	return f.entries[i], nil
}

func (f *fakeRegistry) Installed(_ context.Context, o registry.Owner, kind catalog.Kind, name string) (registry.Install, bool, error) {
	for _, i := range f.installs {
		if i.Owner == o && i.Kind == kind && i.Name == name {
			return i, i.State == registry.Installed, nil
		}
	}
	return registry.Install{}, false, nil
}

func (f *fakeRegistry) Events(_ context.Context, _ catalog.Kind, name string, after *registry.Cursor, limit int) ([]registry.Event, error) {
	if name == "none" {
		return nil, nil
	}
	rest := f.events
	if after != nil {
		rest = rest[1+slices.IndexFunc(rest, func(e registry.Event) bool { return e.ID == after.ID }):]
	}
	return rest[:min(limit, len(rest))], nil
}

// fillRegistry publishes a skill with two pages of events.
func (f *fakeApp) fillRegistry() {
	author := registry.Owner{AgentID: "ag", UserID: "ann"}
	r := &f.skills.published
	r.entries = []registry.Entry{{
		Kind: catalog.Skill, Name: "csv-report", Version: 2, Digest: strings.Repeat("9", 64), Description: "Makes a report.",
		Files: 2, Bytes: 1536, Author: author, FirstPublishedAt: clock, PublishedAt: clock,
	}}
	for i := range 60 {
		r.events = append(r.events, registry.Event{
			ID: execID(1000 - i), Kind: catalog.Skill, Name: "csv-report", Version: 1, Digest: strings.Repeat("8", 64),
			Action: registry.InstallDone, By: registry.Owner{AgentID: "ag", UserID: "bob"}, RequestedBy: "t", At: clock,
		})
	}
	r.events[59].Action, r.events[59].By = registry.Published, author
	r.installs = []registry.Install{{
		Owner: author, Kind: catalog.Skill, Name: "own", State: registry.Installed, Version: 3, Digest: strings.Repeat("8", 64),
		ChangedAt: clock,
	}}
}

// hostileRegistry makes every text of the registry s, but not the name that addresses of tests
// have.
func (f *fakeApp) hostileRegistry(s string) {
	owner := registry.Owner{AgentID: s, UserID: s}
	r := &f.skills.published
	r.entries[0].Description, r.entries[0].Digest, r.entries[0].Author = s, s, owner
	r.entries = append(r.entries, registry.Entry{Kind: catalog.Skill, Name: s, Description: s})
	for i := range r.events {
		e := &r.events[i]
		e.Action, e.Digest, e.By, e.RequestedBy = registry.Action(s), s, owner, s
	}
}
