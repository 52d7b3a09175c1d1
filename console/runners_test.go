package console_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"secbox/health"
	"secbox/sandbox/remote"
)

// TestRunnersLive: the page refreshes itself unless its address says that it pauses.
func TestRunnersLive(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	if _, page := v.get("/console/runners?user_id=a%26b"); !strings.Contains(page, `hx-get="/console/runners?user_id=a%26b"`) ||
		!strings.Contains(page, `hx-trigger="every 5s"`) || !strings.Contains(page, `href="/console/runners?live=off&amp;user_id=a%26b">Pause`) {
		t.Error("the page does not refresh itself")
	}
	if _, page := v.get("/console/runners?user_id=ada&live=off"); strings.Contains(page, "hx-trigger") ||
		!strings.Contains(page, `href="/console/runners?user_id=ada">Go on`) {
		t.Error("the page does not pause")
	}
	if resp, page := v.get("/console/runners?live=on"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "must be off") {
		t.Errorf("live=on: %d", resp.StatusCode)
	}
}

// TestRunnersRefresh: new numbers replace the old ones, and a banner comes, while the focus, the
// scrolled table and everything else stay in their place.
func TestRunnersRefresh(t *testing.T) {
	f := fullApp()
	var later atomic.Bool
	f.connected = func() []remote.RunnerInfo {
		machines := slices.Clone(f.machines)
		machines = append(machines, remote.RunnerInfo{
			UserID: "bob", Name: strings.Repeat("desk", 12), Version: "0.1.0", OS: "linux", Arch: "arm64",
			ConnectedSince: clock, HeardAt: clock, Latency: time.Millisecond,
		})
		if later.Load() {
			machines[1].Latency, machines[1].InFlight, machines[1].HeardAt = 12345*time.Millisecond, 1234, clock.Add(time.Hour)
		}
		return machines
	}
	f.known = func() health.Report {
		if later.Load() {
			return f.report
		}
		return health.Report{Status: health.OK}
	}
	b := open(t, f.serve(t))
	b.do(chromedp.EmulateViewport(720, 900)) // wider than where rows are cards
	b.visit("/console/runners")
	const bob = `a[href*="user_id=bob"]`
	b.do(chromedp.Focus(bob))
	eval[bool](b, `document.querySelector('.scroll[aria-label="Runners"]').scrollLeft = 60, true`)
	const places = `[...document.querySelectorAll(".panel, table, th, .scroll")].map(e =>
		[e.id, e.textContent.slice(0, 9), ...Object.values(e.getBoundingClientRect().toJSON()).map(Math.round)].join(" "))`
	before := eval[[]string](b, places)
	later.Store(true)
	eval[bool](b, `new Promise(done => { const look = () => document.querySelector('tr:has(`+bob+
		`) td:last-child').textContent == "1,234" ? done(true) : setTimeout(look, 20); look(); })`)
	if after := eval[[]string](b, places); !slices.Equal(before, after) {
		t.Errorf("the page jumped:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if !eval[bool](b, `document.activeElement == document.querySelector('`+bob+`')`) {
		t.Error("the focus has moved")
	}
	banner := eval[string](b, `document.querySelector("#banner .banner").checkVisibility() && document.querySelector("#banner").innerText`)
	if !strings.Contains(banner, "repair it") {
		t.Errorf("the banner says %q", banner)
	}
	if left := eval[int](b, `document.querySelector('.scroll[aria-label="Runners"]').scrollLeft`); left != 60 {
		t.Errorf("the table is scrolled by %d", left)
	}
	b.do(chromedp.Focus(`.scroll[aria-label="Runners"]`))
	later.Store(false)
	eval[bool](b, `new Promise(done => { const look = () => document.querySelector('tr:has(`+bob+
		`) td:last-child').textContent == "0" ? done(true) : setTimeout(look, 20); look(); })`)
	if label := eval[string](b, `document.activeElement.getAttribute("aria-label")`); label != "Runners" {
		t.Errorf("the focus is in %s", label)
	}
}
