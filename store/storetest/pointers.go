package storetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/skills"
)

// baseline and overlay are keys of the agent "a".
func baseline(skillID string) skills.PointerKey {
	return skills.PointerKey{AgentID: "a", SkillID: skillID}
}

func overlay(skillID, userID string) skills.PointerKey {
	return skills.PointerKey{AgentID: "a", SkillID: skillID, UserID: userID}
}

// digest is the n-th made-up digest; they ascend.
func digest(n int) string { return fmt.Sprintf("%064x", n) }

// version is a state that says so, without a base.
func version(n int) skills.PointerState { return skills.PointerState{Digest: digest(n)} }

func mustSet(t *testing.T, s skills.Registry, k skills.PointerKey, saw *skills.PointerState, want skills.PointerState) skills.Pointer {
	t.Helper()
	p, err := s.Set(t.Context(), k, saw, want)
	if err != nil {
		t.Fatalf("Set(%+v, %+v): %v", k, want, err)
	}
	return p
}

// says checks what a pointer says; nil: that there is none.
func says(t *testing.T, s skills.Registry, k skills.PointerKey, want *skills.PointerState) skills.Pointer {
	t.Helper()
	p, found, err := s.Get(t.Context(), k)
	switch {
	case err != nil:
		t.Fatal(err)
	case found != (want != nil):
		t.Fatalf("%+v: found is %v", k, found)
	case found && (p.PointerKey != k || p.PointerState != *want):
		t.Fatalf("%+v says %+v, want %+v", k, p, *want)
	case !found && p != skills.Pointer{}:
		t.Fatalf("nothing was found, and it is %+v", p)
	}
	return p
}

func mustList(t *testing.T, s skills.Registry, agentID, userID string) []skills.Pointer {
	t.Helper()
	all, err := s.List(t.Context(), agentID, userID, "", 1000)
	if err != nil || all == nil {
		t.Fatalf("List(%q, %q) = %#v, %v", agentID, userID, all, err)
	}
	return all
}

// said is the state behind each skill id.
func said(all []skills.Pointer) map[string]skills.PointerState {
	states := map[string]skills.PointerState{}
	for _, p := range all {
		states[p.SkillID] = p.PointerState
	}
	return states
}

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// freshID checks that an id is a UUIDv7 of about now.
func freshID(t *testing.T, id string) {
	t.Helper()
	if !uuid7.MatchString(id) {
		t.Fatalf("%q is no UUIDv7", id)
	}
	var ms int64
	if _, err := fmt.Sscanf(strings.ReplaceAll(id, "-", "")[:12], "%x", &ms); err != nil {
		t.Fatal(err)
	}
	if off := time.Since(time.UnixMilli(ms)).Abs(); off > time.Hour { // both clocks are this machine's
		t.Errorf("%s is %v from now", id, off)
	}
}

func pointerRoundTrip(t *testing.T, f Fixture) {
	s := f.Skills()
	if all := mustList(t, s, "a", ""); len(all) != 0 {
		t.Errorf("an empty table has %+v", all)
	}
	says(t, s, baseline("s"), nil)

	first := mustSet(t, s, baseline("s"), nil, version(1))
	freshID(t, first.ID)
	if first.PointerKey != baseline("s") || first.PointerState != version(1) || first.CreatedAt.IsZero() ||
		first.UpdatedAt != first.CreatedAt ||
		first.CreatedAt.Location() != time.UTC || first.CreatedAt.Nanosecond()%1000 != 0 {
		t.Errorf("made %+v", first)
	}
	if got := says(t, s, baseline("s"), &skills.PointerState{Digest: digest(1)}); got != first {
		t.Errorf("read %+v, made %+v", got, first)
	}
	moved := mustSet(t, s, baseline("s"), &first.PointerState, version(2))
	if moved.ID != first.ID || moved.CreatedAt != first.CreatedAt || moved.UpdatedAt.Before(first.UpdatedAt) ||
		moved.PointerState != version(2) {
		t.Errorf("moved %+v to %+v", first, moved)
	}

	// Of a user: a version with a base, one without, and deleted ones with and without a base.
	states := map[string]skills.PointerState{
		"based": {Digest: digest(3), BaseDigest: digest(2)}, "own": version(4), "deleted": {BaseDigest: digest(2)}, "forgotten": {},
	}
	for id, state := range states {
		p := mustSet(t, s, overlay(id, "u"), nil, state)
		if got := says(t, s, overlay(id, "u"), &state); got != p {
			t.Errorf("read %+v, made %+v", got, p)
		}
		for other, back := range states { // from any state to any other, and back
			mustSet(t, s, overlay(id, "u"), &state, back)
			says(t, s, overlay(id, "u"), &back)
			if p := mustSet(t, s, overlay(id, "u"), &back, state); p.PointerState != state {
				t.Errorf("%s to %s and back: %+v", id, other, p)
			}
		}
	}
	again := f.Reopen(t).Skills()
	if got := said(mustList(t, again, "a", "u")); len(got) != len(states) {
		t.Errorf("from another process: %+v", got)
	}
	says(t, again, baseline("s"), &moved.PointerState)

	// Setting the same again succeeds; a removed pointer that is created again is another one.
	mustSet(t, s, baseline("s"), &moved.PointerState, moved.PointerState)
	if err := s.Remove(t.Context(), baseline("s"), moved.PointerState); err != nil {
		t.Fatal(err)
	}
	says(t, s, baseline("s"), nil)
	if p := mustSet(t, s, baseline("s"), nil, version(2)); p.ID == first.ID {
		t.Error("an id was given twice")
	}
	if got := mustList(t, s, "a", "u"); len(got) != len(states) {
		t.Errorf("the user's are now %+v", got)
	}
}

func pointerIDs(t *testing.T, f Fixture) {
	s := f.Skills()
	ids := []string{
		"s", "S", "a--b", "天气查询技能", "погода", "😀", "ß", "ss", "é", "e\u0301", "ﬁ", "İ", "%", "_", "a b", " a", "a ", "a\nb", "\t",
		"O'Brien", `"quoted"`, "`; DROP TABLE agent_skill_registry; --", `back\slash`, "/", "..", "~", "$1", "{}", "null", "NULL", "\ufffd",
		"\uffff", "-",
		strings.Repeat("x", 200), strings.Repeat("x", 199) + "y", strings.Repeat("技", 66) + "ab",
		strings.Repeat("z", skills.MaxPointerIDBytes),
	}
	n := 0
	keys := map[skills.PointerKey]skills.PointerState{}
	for _, id := range ids {
		for _, k := range []skills.PointerKey{
			{AgentID: "a", SkillID: id},
			{AgentID: "a", SkillID: id, UserID: "u"},
			{AgentID: "a", SkillID: "s", UserID: id},
			{AgentID: id, SkillID: "s"},
		} {
			if _, known := keys[k]; known {
				continue // the plain "s" comes from several sides
			}
			n++
			keys[k] = version(n)
			mustSet(t, s, k, nil, version(n))
		}
	}
	for k, state := range keys {
		says(t, s, k, &state)
	}
	var skillIDs []string
	for _, p := range mustList(t, s, "a", "u") {
		skillIDs = append(skillIDs, p.SkillID)
	}
	slices.Sort(ids)
	if !slices.Equal(skillIDs, ids) {
		t.Errorf("the order is not that of the bytes:\n got %q\nwant %q", skillIDs, ids)
	}
	for _, id := range ids {
		if own := mustList(t, s, "a", id); len(own) == 0 || own[0].UserID != id {
			t.Errorf("the pointers of user %q are %+v", id, own)
		}
	}
}

func pointerRefused(t *testing.T, f Fixture) {
	s := f.Skills()
	ctx := t.Context()
	for name, id := range map[string]string{
		"empty": "", "NUL": "a\x00b", "no UTF-8": "a\xff", "256 bytes": strings.Repeat("x", 256),
		"300 characters": strings.Repeat("技", 300),
	} {
		for field, k := range map[string]skills.PointerKey{
			"agent_id": {AgentID: id, SkillID: "s"}, "skill_id": {AgentID: "a", SkillID: id},
			"user_id": {AgentID: "a", SkillID: "s", UserID: id},
		} {
			calls := map[string]error{}
			if field != "user_id" || id != "" { // that is the baseline
				_, _, calls["Get"] = s.Get(ctx, k)
				_, calls["Set"] = s.Set(ctx, k, nil, version(1))
				_, calls["Set from"] = s.Set(ctx, k, &skills.PointerState{}, version(1))
				calls["Remove"] = s.Remove(ctx, k, version(1))
				if field != "skill_id" {
					_, calls["List"] = s.List(ctx, k.AgentID, k.UserID, "", 1)
				}
			}
			if field == "agent_id" {
				_, calls["Digests"] = s.Digests(ctx, id, skills.Version{}, 1)
				_, calls["Pin"] = s.Pin(ctx, id, "u")
			}
			if field == "user_id" {
				_, calls["Pin"] = s.Pin(ctx, "a", id)
			}
			for call, err := range calls {
				if !fault.Is(err, fault.InvalidRequest) || len(fault.From(err).Fields) != 1 || fault.From(err).Fields[0].Field != field {
					t.Errorf("%s, %s in %s: %v", call, name, field, err)
				}
			}
		}
		if id != "" {
			if _, err := s.List(ctx, "a", "u", id, 1); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("List after %s: %v", name, err)
			}
			if _, err := s.Digests(ctx, "a", skills.Version{SkillID: "s", Digest: id}, 1); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("Digests after %s: %v", name, err)
			}
		}
	}
	bad := skills.PointerState{Digest: "sha256:" + digest(1)[7:]}
	for name, c := range map[string]struct {
		key  skills.PointerKey
		want skills.PointerState
	}{
		"a prefix": {overlay("s", "u"), bad}, "upper case": {overlay("s", "u"), skills.PointerState{Digest: strings.Repeat("A", 64)}},
		"short":                {overlay("s", "u"), skills.PointerState{Digest: digest(1)[1:]}},
		"long":                 {overlay("s", "u"), skills.PointerState{BaseDigest: digest(1) + "0"}},
		"a line break":         {overlay("s", "u"), skills.PointerState{BaseDigest: digest(1)[1:] + "\n"}},
		"no baseline":          {baseline("s"), skills.PointerState{}},
		"a baseline on a base": {baseline("s"), skills.PointerState{Digest: digest(1), BaseDigest: digest(2)}},
	} {
		for _, saw := range []*skills.PointerState{nil, {Digest: digest(1)}} {
			if _, err := s.Set(ctx, c.key, saw, c.want); !fault.Is(err, fault.Internal) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// Any expected state that differs from the current one is refused.
	mustSet(t, s, overlay("s", "u"), nil, version(1))
	if _, err := s.Set(ctx, overlay("s", "u"), &bad, version(2)); !fault.Is(err, fault.SkillMoved) {
		t.Errorf("seen what cannot be: %v", err)
	}
	if len(mustList(t, s, "a", "u")) != 1 || len(mustList(t, s, "a", "")) != 0 {
		t.Error("something that was refused is there")
	}
}

// pointerChecks goes past our code, as an administrator's shell would.
func pointerChecks(t *testing.T, f Fixture) {
	s := f.Skills()
	mustSet(t, s, baseline("s"), nil, version(1))
	mustSet(t, s, overlay("s", "u"), nil, version(1))
	before := "UPDATE agent_skill_registry SET created_at = updated_at + 1"
	if f.Kind() == "postgres" {
		before += " * interval '1 second'"
	}
	for name, statement := range map[string]string{
		"a baseline without a digest":   "UPDATE agent_skill_registry SET digest = NULL WHERE user_id IS NULL",
		"a baseline on a base":          "UPDATE agent_skill_registry SET base_digest = digest WHERE user_id IS NULL",
		"an empty user":                 "UPDATE agent_skill_registry SET user_id = '' WHERE user_id IS NOT NULL",
		"an empty skill":                "UPDATE agent_skill_registry SET skill_id = ''",
		"a long agent":                  "UPDATE agent_skill_registry SET agent_id = '" + strings.Repeat("ü", 128) + "'",
		"a digest in upper case":        "UPDATE agent_skill_registry SET digest = '" + strings.Repeat("A", 64) + "'",
		"a short base":                  "UPDATE agent_skill_registry SET base_digest = 'ab' WHERE user_id IS NOT NULL",
		"a short id":                    "UPDATE agent_skill_registry SET id = 'short'",
		"an update before the creation": before,
		"a second baseline":             "UPDATE agent_skill_registry SET user_id = NULL, base_digest = NULL",
		"a second row of the user":      "UPDATE agent_skill_registry SET user_id = 'u'",
	} {
		if _, err := f.SQL(statement); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	one, two := version(1), version(1)
	says(t, s, baseline("s"), &one)
	says(t, s, overlay("s", "u"), &two)
}

func pointerCompareAndSwap(t *testing.T, f Fixture) {
	s := f.Skills()
	key := overlay("s", "u")
	moved := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.SkillMoved) || fault.HTTPStatus(fault.CodeOf(err)) != 409 ||
			!strings.Contains(fault.From(err).Message, `"s"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	set := func(saw *skills.PointerState, want skills.PointerState) error {
		_, err := s.Set(t.Context(), key, saw, want)
		return err
	}
	state := skills.PointerState{Digest: digest(2), BaseDigest: digest(1)}
	moved("absent", set(&state, version(9)))
	moved("absent, seen empty", set(&skills.PointerState{}, version(9)))
	moved("removing an absent one", s.Remove(t.Context(), key, state))
	says(t, s, key, nil)

	before := mustSet(t, s, key, nil, state)
	mustSet(t, s, baseline("s"), nil, version(7)) // another row of the same skill
	mustSet(t, s, overlay("s", "v"), nil, state)
	for what, saw := range map[string]*skills.PointerState{
		"seen absent": nil, "another digest": {Digest: digest(3), BaseDigest: digest(1)},
		"another base": {Digest: digest(2), BaseDigest: digest(3)},
		"no base":      {Digest: digest(2)}, "no digest": {BaseDigest: digest(1)}, "nothing": {},
		"the other way round": {Digest: digest(1), BaseDigest: digest(2)},
	} {
		moved(what, set(saw, version(9)))
		moved(what+", to the same", set(saw, state))
		if saw != nil {
			moved("removing, "+what, s.Remove(t.Context(), key, *saw))
		}
	}
	if after := says(t, s, key, &state); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
	if err := s.Remove(t.Context(), key, state); err != nil {
		t.Fatal(err)
	}
	moved("removing twice", s.Remove(t.Context(), key, state))
	seven := version(7)
	says(t, s, baseline("s"), &seven)
	says(t, s, overlay("s", "v"), &state)

	// The empty state is one too.
	mustSet(t, s, key, nil, skills.PointerState{})
	moved("a deleted one seen absent", set(nil, version(1)))
	mustSet(t, s, key, &skills.PointerState{}, version(1))
}

func pointerPaging(t *testing.T, f Fixture) {
	s := f.Skills()
	var want []string
	for i := range 23 {
		id := fmt.Sprintf("skill-%02d", (i*7)%23)
		want = append(want, id)
		mustSet(t, s, baseline(id), nil, version(i+1))
		if i%2 == 0 {
			mustSet(t, s, overlay(id, "u"), nil, version(i+1))
		}
		mustSet(t, s, skills.PointerKey{AgentID: "b", SkillID: id}, nil, version(99)) // another agent's
		mustSet(t, s, overlay(id, "v"), nil, version(98))
	}
	slices.Sort(want)
	for _, size := range []int{1, 2, 5, 22, 23, 24, 1000} {
		var got []string
		after := ""
		for {
			page, err := s.List(t.Context(), "a", "", after, size)
			if err != nil || len(page) > size {
				t.Fatalf("%d pointers on a page of %d, %v", len(page), size, err)
			}
			for _, p := range page {
				got = append(got, p.SkillID)
				if p.AgentID != "a" || p.UserID != "" || p.Digest >= digest(98) {
					t.Errorf("not a baseline of the agent: %+v", p)
				}
			}
			if len(page) < size {
				break
			}
			after = page[len(page)-1].SkillID
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v", size, got)
		}
	}
	if own := mustList(t, s, "a", "u"); len(own) != 12 {
		t.Errorf("the user has %d", len(own))
	}
	for _, limit := range []int{0, -1} {
		if page, err := s.List(t.Context(), "a", "", "", limit); err != nil || page == nil || len(page) != 0 {
			t.Errorf("limit %d: %+v, %v", limit, page, err)
		}
	}
	if page, err := s.List(t.Context(), "a", "", "skill-99", 10); err != nil || page == nil || len(page) != 0 {
		t.Errorf("after the last: %+v, %v", page, err)
	}
}

func versionsInUse(t *testing.T, f Fixture) {
	s := f.Skills()
	want := []skills.Version{}
	use := func(skillID string, n int) {
		want = append(want, skills.Version{SkillID: skillID, Digest: digest(n)})
	}
	for i := range 7 {
		id := fmt.Sprintf("s%d", i)
		mustSet(t, s, baseline(id), nil, version(10*i+1))
		mustSet(t, s, overlay(id, "pinned"), nil, skills.PointerState{Digest: digest(10*i + 1), BaseDigest: digest(10*i + 1)})
		mustSet(t, s, overlay(id, "edited"), nil, skills.PointerState{Digest: digest(10*i + 3), BaseDigest: digest(10*i + 2)})
		mustSet(t, s, overlay(id, "deleted"), nil, skills.PointerState{BaseDigest: digest(10*i + 4)})
		mustSet(t, s, overlay(id, "forgot"), nil, skills.PointerState{})
		mustSet(t, s, skills.PointerKey{AgentID: "b", SkillID: id}, nil, version(10*i+5))
		for n := range 4 {
			use(id, 10*i+n+1)
		}
	}
	for _, size := range []int{1, 2, 3, 4, 27, 28, 29, 500} {
		got := []skills.Version{}
		after := skills.Version{}
		for {
			page, err := s.Digests(t.Context(), "a", after, size)
			if err != nil || page == nil || len(page) > size {
				t.Fatalf("%d versions on a page of %d, %v", len(page), size, err)
			}
			got = append(got, page...)
			if len(page) < size {
				break
			}
			after = page[len(page)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d:\n got %v\nwant %v", size, got, want)
		}
	}
	// One skill is looked up by its id.
	if page, err := s.Digests(t.Context(), "a", skills.Version{SkillID: "s3"}, 4); err != nil || !slices.Equal(page, want[12:16]) {
		t.Errorf("from s3 on: %v, %v", page, err)
	}
	if page, err := s.Digests(t.Context(), "none", skills.Version{}, 10); err != nil || page == nil || len(page) != 0 {
		t.Errorf("of an agent without skills: %+v, %v", page, err)
	}
	if page, err := s.Digests(t.Context(), "a", skills.Version{}, 0); err != nil || page == nil || len(page) != 0 {
		t.Errorf("limit 0: %+v, %v", page, err)
	}
	// A moved baseline to which no user is pinned is no longer in use.
	from := version(61)
	mustSet(t, s, baseline("s6"), &from, version(69))
	pinned := skills.PointerState{Digest: digest(61), BaseDigest: digest(61)}
	if err := s.Remove(t.Context(), overlay("s6", "pinned"), pinned); err != nil {
		t.Fatal(err)
	}
	page, err := s.Digests(t.Context(), "a", skills.Version{SkillID: "s6"}, 10)
	if err != nil || len(page) != 4 || page[0].Digest != digest(62) || page[3].Digest != digest(69) {
		t.Errorf("after the move: %v, %v", page, err)
	}
}
