package storetest

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"secbox/fault"
	"secbox/skills"
)

func mustPin(t *testing.T, s skills.Registry, agentID, userID string) skills.Pinned {
	t.Helper()
	pinned, err := s.Pin(t.Context(), agentID, userID)
	if err != nil {
		t.Fatal(err)
	}
	return pinned
}

func pinFirst(t *testing.T, f Fixture) {
	s := f.Skills()
	for range 2 {
		if got := mustPin(t, s, "a", "u"); got != (skills.Pinned{First: true}) { // nothing to remember it by
			t.Errorf("an agent without skills: %+v", got)
		}
	}
	want := map[string]skills.PointerState{}
	for i := range 200 {
		id := fmt.Sprintf("skill-%03d", i)
		mustSet(t, s, baseline(id), nil, version(i+1))
		want[id] = skills.PointerState{Digest: digest(i + 1), BaseDigest: digest(i + 1)}
	}
	mustSet(t, s, skills.PointerKey{AgentID: "b", SkillID: "other"}, nil, version(1))
	if got := mustPin(t, s, "a", "u"); got != (skills.Pinned{First: true, Added: 200}) {
		t.Errorf("the first access: %+v", got)
	}
	pins := mustList(t, s, "a", "u")
	if !maps.Equal(said(pins), want) {
		t.Errorf("pinned %+v", said(pins))
	}
	ids := map[string]bool{}
	for _, p := range pins {
		freshID(t, p.ID)
		ids[p.ID] = true
		if p.CreatedAt.IsZero() || p.UpdatedAt != p.CreatedAt {
			t.Errorf("made at %v, updated at %v", p.CreatedAt, p.UpdatedAt)
		}
	}
	if len(ids) != 200 {
		t.Errorf("200 pins have %d ids", len(ids))
	}
	if got := mustPin(t, f.Reopen(t).Skills(), "a", "u"); got != (skills.Pinned{}) {
		t.Errorf("the second access, by another node: %+v", got)
	}
	if again := mustList(t, s, "a", "u"); len(again) != 200 || again[7] != pins[7] {
		t.Error("a second access changes pins")
	}

	// A baseline that comes later is pinned at the next access; one that moved is not, that is the
	// user's choice.
	one := version(1)
	mustSet(t, s, baseline("skill-000"), &one, version(1000))
	mustSet(t, s, baseline("a new one"), nil, version(1001))
	if got := mustPin(t, s, "a", "u"); got != (skills.Pinned{Added: 1}) {
		t.Errorf("after a new baseline: %+v", got)
	}
	says(t, s, overlay("a new one", "u"), &skills.PointerState{Digest: digest(1001), BaseDigest: digest(1001)})
	says(t, s, overlay("skill-000", "u"), &skills.PointerState{Digest: digest(1), BaseDigest: digest(1)})
	if got := mustPin(t, s, "a", "v"); got != (skills.Pinned{First: true, Added: 201}) {
		t.Errorf("another user: %+v", got)
	}
	if got := mustPin(t, s, "b", "u"); got != (skills.Pinned{First: true, Added: 1}) {
		t.Errorf("another agent: %+v", got)
	}
	if got := len(mustList(t, s, "a", "")); got != 201 {
		t.Errorf("%d baselines", got)
	}
}

func pinKeeps(t *testing.T, f Fixture) {
	s := f.Skills()
	for i, id := range []string{"deleted", "edited", "own", "untouched"} {
		mustSet(t, s, baseline(id), nil, version(i+1))
	}
	want := map[string]skills.PointerState{
		"deleted": {}, "edited": {Digest: digest(9), BaseDigest: digest(8)}, "own": version(7), "no baseline": version(6),
	}
	for id, state := range want {
		mustSet(t, s, overlay(id, "u"), nil, state)
	}
	if got := mustPin(t, s, "a", "u"); got != (skills.Pinned{Added: 1}) {
		t.Errorf("%+v", got)
	}
	want["untouched"] = skills.PointerState{Digest: digest(4), BaseDigest: digest(4)}
	if got := said(mustList(t, s, "a", "u")); !maps.Equal(got, want) {
		t.Errorf("the user has %+v, want %+v", got, want)
	}
	// A removed pointer comes back; one that an empty digest deletes does not.
	untouched := want["untouched"]
	mustSet(t, s, overlay("untouched", "u"), &untouched, skills.PointerState{BaseDigest: digest(4)})
	if err := s.Remove(t.Context(), overlay("own", "u"), version(7)); err != nil {
		t.Fatal(err)
	}
	if got := mustPin(t, s, "a", "u"); got != (skills.Pinned{Added: 1}) {
		t.Errorf("after a removal: %+v", got)
	}
	says(t, s, overlay("untouched", "u"), &skills.PointerState{BaseDigest: digest(4)})
	says(t, s, overlay("own", "u"), &skills.PointerState{Digest: digest(3), BaseDigest: digest(3)})
}

func pinRace(t *testing.T, f Fixture) {
	nodes := []skills.Registry{f.Skills(), f.Reopen(t).Skills()}
	const skillCount, callers = 20, 32
	for i := range skillCount {
		mustSet(t, nodes[0], baseline(fmt.Sprintf("s%02d", i)), nil, version(i+1))
	}
	for round := range 4 {
		user := fmt.Sprintf("u%d", round)
		results := make([]skills.Pinned, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				var err error
				if results[i], err = nodes[i%2].Pin(t.Context(), "a", user); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() { // a new baseline comes at the same time
			_, err := nodes[0].Set(t.Context(), baseline(fmt.Sprintf("t%02d", round)), nil, version(500+round))
			if err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		firsts, added := 0, 0
		for _, r := range results {
			added += r.Added
			if r.First {
				firsts++
			}
		}
		added += mustPin(t, nodes[0], "a", user).Added
		if want := skillCount + round + 1; firsts != 1 || added != want || len(mustList(t, nodes[0], "a", user)) != want {
			t.Errorf("round %d: %d were the first, %d pins were made, want %d", round, firsts, added, want)
		}
	}
}

// pinWhileMoving moves a baseline repeatedly while users are pinned. After each move a garbage
// collector lists the versions in use; no user may be pinned afterwards to a version that was not
// in the list.
func pinWhileMoving(t *testing.T, f Fixture) {
	s := f.Skills()
	const moves, users = 60, 120
	mustSet(t, s, baseline("s"), nil, version(1))
	collected := map[string]bool{}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 1; n <= moves; n++ {
			saw := version(n)
			if _, err := s.Set(t.Context(), baseline("s"), &saw, version(n+1)); err != nil {
				t.Error(err)
				return
			}
			inUse, err := s.Digests(t.Context(), "a", skills.Version{}, 1000)
			if err != nil {
				t.Error(err)
				return
			}
			used := map[string]bool{}
			for _, v := range inUse {
				used[v.Digest] = true
			}
			for old := 1; old <= n; old++ {
				if !used[digest(old)] {
					collected[digest(old)] = true
				}
			}
		}
	})
	for worker := range 4 {
		all.Go(func() {
			for i := range users / 4 {
				if _, err := s.Pin(t.Context(), "a", fmt.Sprintf("u%d-%d", worker, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for worker := range 4 {
		for i := range users / 4 {
			pins := mustList(t, s, "a", fmt.Sprintf("u%d-%d", worker, i))
			if len(pins) != 1 || pins[0].Digest != pins[0].BaseDigest || collected[pins[0].Digest] {
				t.Errorf("pinned %+v, which is out of use", pins)
			}
		}
	}
}

// pointerRace is 32 callers who all saw the same: in each round exactly one of them moves the
// pointer, and it says what that one said.
func pointerRace(t *testing.T, f Fixture) {
	nodes := []skills.Registry{f.Skills(), f.Reopen(t).Skills()}
	const callers, rounds = 32, 12
	for _, key := range []skills.PointerKey{baseline("s"), overlay("s", "u")} {
		var saw *skills.PointerState // the first round races to make it
		for round := range rounds {
			won := make([]*skills.Pointer, callers)
			begin := make(chan struct{})
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					want := version(1 + round*callers + i)
					<-begin
					p, err := nodes[i%2].Set(t.Context(), key, saw, want)
					switch {
					case err == nil && p.PointerState != want:
						t.Errorf("set %+v, got %+v", want, p)
					case err == nil:
						won[i] = &p
					case !fault.Is(err, fault.SkillMoved):
						t.Error(err)
					}
				})
			}
			close(begin)
			all.Wait()
			var winner *skills.Pointer
			for _, p := range won {
				if p != nil && winner != nil {
					t.Fatalf("round %d has two winners: %+v and %+v", round, *winner, *p)
				}
				if p != nil {
					winner = p
				}
			}
			if winner == nil {
				t.Fatalf("round %d has no winner", round)
			}
			if got := says(t, nodes[0], key, &winner.PointerState); got != *winner {
				t.Errorf("%+v won, there is %+v", *winner, got)
			}
			saw = &winner.PointerState
		}
	}
}

// pointerCounterRace counts up by read and compare-and-swap, from many callers: every success is
// one step, and no step is lost.
func pointerCounterRace(t *testing.T, f Fixture) {
	nodes := []skills.Registry{f.Skills(), f.Reopen(t).Skills()}
	const callers, steps = 8, 12
	key := overlay("s", "u")
	mustSet(t, nodes[0], key, nil, version(0))
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			s := nodes[i%2]
			for done := 0; done < steps && !t.Failed(); {
				p, found, err := s.Get(t.Context(), key)
				if err != nil || !found {
					t.Errorf("found is %v, %v", found, err)
					return
				}
				var n int
				if _, err := fmt.Sscanf(p.Digest, "%x", &n); err != nil {
					t.Error(err)
					return
				}
				switch _, err := s.Set(t.Context(), key, &p.PointerState,
					skills.PointerState{Digest: digest(n + 1), BaseDigest: p.Digest}); {
				case err == nil:
					done++
				case !fault.Is(err, fault.SkillMoved):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	says(t, nodes[0], key, &skills.PointerState{Digest: digest(callers * steps), BaseDigest: digest(callers*steps - 1)})
}

// pointerRemoveRace creates and removes one pointer concurrently: successful creations minus
// successful removals must be left.
func pointerRemoveRace(t *testing.T, f Fixture) {
	s := f.Skills()
	for _, key := range []skills.PointerKey{baseline("s"), overlay("s", "u")} {
		var mu sync.Mutex
		left := 0
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for range 10 {
					by, err := 1, error(nil)
					if i%2 == 0 {
						_, err = s.Set(t.Context(), key, nil, version(1))
					} else {
						by, err = -1, s.Remove(t.Context(), key, version(1))
					}
					switch {
					case err == nil:
						mu.Lock()
						left += by
						mu.Unlock()
					case !fault.Is(err, fault.SkillMoved):
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		_, found, err := s.Get(t.Context(), key)
		if err != nil || left != 0 && left != 1 || found != (left == 1) {
			t.Errorf("%d are left, found is %v, %v", left, found, err)
		}
	}
}
