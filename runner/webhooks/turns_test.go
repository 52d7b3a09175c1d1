package webhooks

import (
	"fmt"
	neturl "net/url"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPageHasTheBounds: docs/webhooks.md gives the numbers that are in force.
func TestPageHasTheBounds(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("at most %d requests at once, %d of them for one token; and %d to one host, %d of them for one token.", atOnce, perToken, perHost,
		perTokenHost)
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("the page does not say: %s", want)
	}
}

// TestTurns: of tokens that all have more to do than there is room for, each gets as much of the
// node, and of a host, as the others.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, tokens := range []int{1, 2, 3, 4, 40} {
		waits := newTurns()
		var names []string
		for i := range tokens {
			names = append(names, fmt.Sprint("token-", i))
		}
		waits.setDue(names)
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
	one.setDue([]string{"a", "b", "c"})
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
	one.setDue(nil)
	if len(one.tokens) != 0 {
		t.Errorf("tokens without deliveries are remembered: %v", one.tokens)
	}
}

// TestOneHostInAllSpellings: deliveries to one host count together, also those that an older
// version stored as the client had spelled their host.
func TestOneHostInAllSpellings(t *testing.T) {
	t.Parallel()
	var stored []Delivery
	for _, url := range []string{
		"https://hooks.test/1", "https://hooks.test:443/2", sealedPrefix + "https://HOOKS.test/3?sealed",
		"https://hooks.test:0443/4",
	} {
		u, err := neturl.Parse(WithoutQuery(url))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, Delivery{RequestedBy: "a", Host: strings.ToLower(u.Host), URL: url}) // as before
		if host := countedHost(stored[len(stored)-1]); host != "hooks.test:443" {
			t.Errorf("%s counts as %s", url, host)
		}
	}
	waits := newTurns()
	waits.setDue([]string{"a"})
	for _, d := range stored[:perTokenHost] {
		_, except, _ := waits.next()
		if n := len(waits.hosts); n > 1 || n == 1 && !slices.Contains(except, "hooks.test") {
			t.Errorf("%d hosts, all but %v may be called first", n, except)
		}
		waits.begin("a", countedHost(d))
	}
	_, except, _ := waits.next()
	for _, spelled := range []string{"hooks.test", "hooks.test:443"} {
		if !slices.Contains(except, spelled) {
			t.Errorf("with %d tries to it, %s is not among %v", perTokenHost, spelled, except)
		}
	}
	waits.none("a", except)
	if token, _, ok := waits.next(); ok {
		t.Errorf("%s may try although its only host is full", token)
	}
	waits.end("a", countedHost(stored[0]))
	if _, _, ok := waits.next(); !ok {
		t.Error("no try although its host has a place again")
	}
}
