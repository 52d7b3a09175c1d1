package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

func choiceRoundTrip(t *testing.T, f Fixture) {
	s := f.Sandboxes()
	expect := func(from sandbox.Choices, userID string, want sandbox.Choice, ok bool) {
		t.Helper()
		got, found, err := from.Choice(t.Context(), userID)
		if err != nil || found != ok || !reflect.DeepEqual(got, want) {
			t.Errorf("Choice(%.20q) = %+v, %v, %v; want %+v", userID, got, found, err, want)
		}
	}
	for _, userID := range []string{"u", "", "\x00", "\xff", strings.Repeat("x", 9000)} {
		expect(s, userID, sandbox.Choice{}, false)
	}
	first := sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "laptop", UpdatedAt: base}
	other := sandbox.Choice{UserID: "U", Backend: sandbox.None, UpdatedAt: base} // another user: ids are compared by bytes
	for _, c := range []sandbox.Choice{first, other} {
		given := c
		given.UpdatedAt = c.UpdatedAt.Add(999).In(time.FixedZone("x", 3600)) // is kept in UTC, to the microsecond
		if err := s.Choose(t.Context(), given); err != nil {
			t.Fatal(err)
		}
	}
	expect(s, "u", first, true)
	expect(s, "U", other, true)
	expect(f.Reopen(t).Sandboxes(), "u", first, true)

	second := sandbox.Choice{UserID: "u", Backend: sandbox.Docker, UpdatedAt: base.Add(time.Second)}
	if err := s.Choose(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	expect(s, "u", second, true) // the runner of before is gone
	expect(s, "U", other, true)
}

func choiceRace(t *testing.T, f Fixture) {
	s := f.Sandboxes()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint(i)
			if err := s.Choose(t.Context(), sandbox.Choice{
				UserID: "u", Backend: "b" + name, Runner: "r" + name,
				UpdatedAt: base.Add(time.Duration(i) * time.Second),
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, ok, err := s.Choice(t.Context(), "u")
	if err != nil || !ok || len(got.Backend) != 2 || got.Runner != "r"+got.Backend[1:] ||
		fmt.Sprint(int(got.UpdatedAt.Sub(base).Seconds())) != got.Backend[1:] {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
}

func choiceRefused(t *testing.T, f Fixture) {
	s := f.Sandboxes()
	good := sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "laptop", UpdatedAt: base}
	for name, change := range map[string]func(*sandbox.Choice){
		"no user":             func(c *sandbox.Choice) { c.UserID = "" },
		"no backend":          func(c *sandbox.Choice) { c.Backend = "" },
		"a user with a NUL":   func(c *sandbox.Choice) { c.UserID = "u\x00" },
		"a runner, no UTF-8":  func(c *sandbox.Choice) { c.Runner = "\xff" },
		"a user without end":  func(c *sandbox.Choice) { c.UserID = strings.Repeat("x", 9000) },
		"a runner, just long": func(c *sandbox.Choice) { c.Runner = strings.Repeat("x", 513) },
	} {
		bad := good
		change(&bad)
		if err := s.Choose(t.Context(), bad); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok, err := s.Choice(t.Context(), "u"); ok || err != nil {
		t.Errorf("something was written: %v, %v", ok, err)
	}
}
