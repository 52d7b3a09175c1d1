package webhooks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPageHasTheBounds: docs/webhooks.md gives the numbers that are in force.
func TestPageHasTheBounds(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("at most %d requests at once, %d of them for one token; and %d to one host, %d of them for one token.", atOnce, perToken, perHost, perTokenHost)
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("the page does not say: %s", want)
	}
}

// TestTurns: of tokens that all have more to do than there is room for, each gets as much of the node, and of a host, as the others.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, tokens := range []int{1, 2, 3, 4, 40} {
		waits := newTurns()
		var names []string
		for i := range tokens {
			names = append(names, fmt.Sprint("token-", i))
		}
		waits.look(names)
		counts := map[string]int{}
		for n := 0; ; n++ {
			token, except, ok := waits.next()
			if !ok {
				break
			}
			host := fmt.Sprint(token, "-", n, ".example")
			if slices.Contains(except, host) {
				t.Fatalf("%s is excepted", host)
			}
			waits.begin(token, host)
			counts[token]++
		}
		for _, token := range names {
			if want := min(perToken, atOnce/tokens); counts[token] < want || counts[token] > want+1 {
				t.Errorf("of %d tokens, one has %d tries at once, want %d", tokens, counts[token], want)
			}
		}
	}

	one := newTurns()
	one.look([]string{"a", "b", "c"})
	began := func() (of []string) {
		for {
			token, except, ok := one.next()
			if !ok {
				return of
			}
			if slices.Contains(except, "x.example") {
				one.none(token, except) // it has due deliveries to this host only
				continue
			}
			one.begin(token, "x.example")
			of = append(of, token)
		}
	}
	first := began()
	counts := map[string]int{}
	for _, token := range first {
		counts[token]++
	}
	if len(first) != perHost || len(counts) != 3 {
		t.Errorf("of one host %v have tries", first)
	}
	for range 50 { // as one ends, the token with the fewest follows
		one.end(first[0], "x.example")
		first = append(first[1:], began()...)
		counts := map[string]int{}
		for _, token := range first {
			counts[token]++
		}
		if len(first) != perHost || len(counts) != 3 {
			t.Fatalf("of one host %v have tries", first)
		}
	}
	for _, token := range first {
		one.end(token, "x.example")
	}
	if one.tries != 0 || len(one.hosts) != 0 {
		t.Errorf("%+v", one)
	}
	one.look(nil)
	if len(one.tokens) != 0 {
		t.Errorf("tokens without deliveries are remembered: %v", one.tokens)
	}
}
