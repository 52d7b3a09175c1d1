package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/skills"
)

func agentsInPages(t *testing.T, f Fixture) {
	s := f.Skills()
	if page, err := s.Agents(t.Context(), "", 10); err != nil || page == nil || len(page) != 0 {
		t.Errorf("an empty table: %+v, %v", page, err)
	}
	want := []string{}
	for i := range 9 {
		id := fmt.Sprintf("agent-%d", i)
		want = append(want, id)
		if i%3 != 0 { // the others have users only
			mustSet(t, s, skills.PointerKey{AgentID: id, SkillID: "s"}, nil, version(1))
		}
		for user := range 5 {
			mustSet(t, s, skills.PointerKey{AgentID: id, SkillID: "s", UserID: fmt.Sprint(user)}, nil, skills.PointerState{})
		}
	}
	mustSet(t, s, skills.PointerKey{AgentID: "Agent-1", SkillID: "s"}, nil, version(1))
	want = append([]string{"Agent-1"}, want...) // by bytes
	for _, size := range []int{1, 2, 9, 10, 11} {
		got := []string{}
		for after := ""; ; {
			page, err := s.Agents(t.Context(), after, size)
			if err != nil || page == nil || len(page) > size {
				t.Fatalf("%d agents on a page of %d, %v", len(page), size, err)
			}
			got = append(got, page...)
			if len(page) < size {
				break
			}
			after = page[len(page)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v", size, got)
		}
	}
	if page, err := s.Agents(t.Context(), "", 0); err != nil || page == nil || len(page) != 0 {
		t.Errorf("limit 0: %+v, %v", page, err)
	}
	if _, err := s.Agents(t.Context(), "a\x00", 1); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("after NUL: %v", err)
	}
}

func rowsInPages(t *testing.T, f Fixture) {
	s := f.Skills()
	ctx := t.Context()
	var want []skills.Pointer
	for _, id := range []string{"a", "ab", "b", "ü"} {
		want = append(want, mustSet(t, s, baseline(id), nil, version(1)))
		mustSet(t, s, skills.PointerKey{AgentID: "b", SkillID: id}, nil, version(9)) // another agent's
	}
	for _, user := range []string{"U", "u", "v"} {
		for _, id := range []string{"a", "b", "own"} {
			want = append(want, mustSet(t, s, overlay(id, user), nil, skills.PointerState{Digest: digest(2), BaseDigest: digest(1)}))
		}
	}
	for size := 1; size <= len(want)+1; size++ {
		var got []skills.Pointer
		for after := (skills.PointerKey{}); ; {
			page, err := s.Rows(ctx, "a", after, size)
			if err != nil || page == nil || len(page) > size {
				t.Fatalf("%d rows on a page of %d, %v", len(page), size, err)
			}
			got = append(got, page...)
			if len(page) < size {
				break
			}
			after = page[len(page)-1].PointerKey
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d:\n got %+v\nwant %+v", size, got, want)
		}
	}
	if page, err := s.Rows(ctx, "none", skills.PointerKey{}, 10); err != nil || page == nil || len(page) != 0 {
		t.Errorf("of an agent without pointers: %+v, %v", page, err)
	}
	if page, err := s.Rows(ctx, "a", skills.PointerKey{}, 0); err != nil || page == nil || len(page) != 0 {
		t.Errorf("limit 0: %+v, %v", page, err)
	}
	for _, id := range []string{"a\x00b", "a\xff", strings.Repeat("x", 256)} {
		for call, after := range map[string]skills.PointerKey{"skill": {SkillID: id}, "user": {UserID: id}} {
			if _, err := s.Rows(ctx, "a", after, 1); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("after %s %.10q: %v", call, id, err)
			}
		}
		if _, err := s.Rows(ctx, id, skills.PointerKey{}, 1); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("of %.10q: %v", id, err)
		}
	}
}
