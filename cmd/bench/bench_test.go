//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"secbox/engine"
)

func TestAlternate(t *testing.T) {
	t.Parallel()
	var order string
	turn := func(name string, failAt int, err error, end context.CancelCauseFunc) lane {
		n := 0
		return lane{side: side{turn: func(context.Context, *subject) ([]float64, error) {
			n++
			order += name
			if n == failAt {
				if end != nil {
					end(errTimeLimit)
				}
				return nil, err
			}
			return []float64{float64(n)}, nil
		}}}
	}
	values := func(rounds ...float64) (out [][]float64) {
		for _, v := range rounds {
			out = append(out, []float64{v})
		}
		return out
	}
	same := func(a, b [][]float64) bool { return slices.EqualFunc(a, b, slices.Equal) }
	broken := errors.New("broken")

	got, err := alternate(t.Context(), 3, 1, &pacer{}, []lane{turn("a", 0, nil, nil), turn("b", 0, nil, nil), turn("c", 0, nil, nil)})
	if order != "abccbaabc" || err != nil || !same(got[0], values(1, 2, 3)) || !same(got[2], values(1, 2, 3)) {
		t.Errorf("%s %v %v", order, got, err)
	}
	if _, err := alternate(t.Context(), 3, 1, &pacer{}, []lane{turn("a", 0, nil, nil), turn("b", 2, broken, nil)}); !errors.Is(err, broken) {
		t.Errorf("an error of one side gave %v", err)
	}

	// A round that the time limit interrupts does not count; too few rounds are an error.
	ctx, end := context.WithCancelCause(t.Context())
	got, err = alternate(ctx, 5, 2, &pacer{}, []lane{turn("a", 3, broken, end), turn("b", 0, nil, nil)})
	if err != nil || !same(got[0], values(1, 2)) || !same(got[1], values(1, 2)) {
		t.Errorf("at the time limit: %v %v", got, err)
	}
	ctx, end = context.WithCancelCause(t.Context())
	if _, err := alternate(ctx, 5, 3, &pacer{}, []lane{turn("a", 3, broken, end)}); !errors.Is(err, errTimeLimit) {
		t.Errorf("too few rounds before the time limit gave %v", err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(context.Canceled)
	if _, err := alternate(ctx, 5, 0, &pacer{}, []lane{turn("a", 0, nil, nil)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Ctrl-C gave %v", err)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		p := &pacer{every: 500 * time.Millisecond}
		var starts []time.Duration
		// The third turn takes longer than the pace: the fourth starts late, and the fifth a whole
		// pace after that.
		for _, takes := range []time.Duration{100, 499, 1200, 10, 500, 0} {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			starts = append(starts, time.Since(begun)/time.Millisecond)
			time.Sleep(takes * time.Millisecond)
		}
		if want := []time.Duration{0, 500, 1000, 2200, 2700, 3200}; !slices.Equal(starts, want) || p.turns != 6 || p.late != 1 {
			t.Errorf("turns started at %d ms, want %d; %d of %d late", starts, want, p.late, p.turns)
		}
	})
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{4, 1}, 0.5, 2.5},
		{[]float64{9, 1, 5}, 0, 1},
		{[]float64{9, 1, 5}, 1, 9},
		{[]float64{0, 10, 20, 30, 40}, 0.95, 38},
	} {
		if got := quantile(c.values, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
	if !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("the median of nothing is a number")
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	sides := []Summary{
		summarise(side{name: "core-api", unit: ms}, [][]float64{{10}, {10}, {20}}),
		summarise(side{name: "docker run", unit: ms}, [][]float64{{200}, {100}, {100}}),
	}
	for _, c := range []struct {
		row
		coreAPI, other, measured, wanted string
		reached                          bool
	}{
		{row{bound: 10}, "10.0 ms", "", "10.0 ms", "≤ 10.0 ms", true},
		{row{bound: 9.9}, "10.0 ms", "", "10.0 ms", "≤ 9.9 ms", false},
		{row{bound: 11, least: true}, "10.0 ms", "", "10.0 ms", "≥ 11.0 ms", false},
		{row{other: 1, form: part, bound: 1. / 10}, "10.0 ms", "100.0 ms (docker run)", "1/10.0", "≤ 1/10", true},
		{row{other: 1, form: part, bound: 1. / 11}, "10.0 ms", "100.0 ms (docker run)", "1/10.0", "≤ 1/11", false},
		{row{other: 1, form: part, stat: p95}, "19.0 ms", "190.0 ms (docker run)", "1/10.0", "", false},
		{row{other: 1, form: times, bound: 0.95, least: true}, "10.0 ms", "100.0 ms (docker run)", "0.1×", "≥ 0.95×", false},
		{row{other: 1, form: times, stat: paired, bound: 0.1}, "10.0 ms", "100.0 ms (docker run)", "0.1×", "≤ 0.1×", true},
		{row{ours: 1, other: 0, form: adds, bound: 90}, "100.0 ms", "10.0 ms (core-api)", "+90.0 ms", "≤ +90 ms", true},
	} {
		got := c.measure(sides)
		got.Value = 0
		if want := (Target{CoreAPI: c.coreAPI, Other: c.other, Measured: c.measured, Wanted: c.wanted, Reached: c.reached}); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	for n, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1 << 20: "1 MiB", 3 << 29: "1.5 GiB", 5 << 40: "5120 GiB"} {
		if got := binarySize(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	const n, mean = 3000, 500 * time.Millisecond
	draw := func(seed uint64) []arrival { return schedule(rand.New(rand.NewPCG(seed, 0)), n, mean) }
	list := draw(1)
	if !slices.Equal(list, draw(1)) || slices.Equal(list, draw(2)) {
		t.Error("the arrivals do not depend on the seed alone")
	}
	var sum time.Duration
	short := 0 // of exponential gaps, 1-1/e = 63 % are shorter than their mean; of even ones none
	for _, a := range list {
		sum += a.gap
		if a.gap < mean {
			short++
		}
	}
	if got := sum / n; got < 470*time.Millisecond || got > 530*time.Millisecond || short < n*60/100 || short > n*66/100 {
		t.Errorf("%v apart on average, %d of %d gaps shorter than the mean", got, short, n)
	}
	synctest.Test(t, func(t *testing.T) { // arrivals do not wait for answers, and their clock runs from when they are due
		x := &subject{server: &server{client: &client{Client: &http.Client{Transport: answers(`{"status": "succeeded"}`)}}}}
		values, err := x.arrive(t.Context(), []arrival{{gap: time.Second}, {gap: 2 * time.Second, project: 1}, {project: 2}}, "p", nothing)
		if err != nil || !slices.Equal(values, []float64{10_000, 10_000, 10_000}) {
			t.Errorf("%v %v", values, err)
		}
	})
}

// answers is a core-api that takes ten seconds for each answer.
type answers string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Second)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a))), Request: r}, nil
}

// recorded is the docker argv of an exec, as meta.json has it, with these mounts.
func recorded(mounts string) []string {
	return strings.Fields(`run -i --rm --sig-proxy=false --name secbox-01a1 --label secbox.installation=b12c --label secbox.node=01a1
		--label secbox.exec=01a1 --network=none --memory 1024m --user 1000:1000 --workdir /workspace/work
		--entrypoint /opt/secbox/sandbox-init --runtime crun --read-only ` + mounts + ` --mount type=volume,source=init,target=/opt/secbox,readonly sha256:cc79`)
}

// TestPlainArgs checks that docker run gets the mounts of the exec, also if its container waited
// for any project.
func TestPlainArgs(t *testing.T) {
	t.Parallel()
	mounts := inProject([]engine.Mount{
		{Source: "/w/projects/bench/inputs", Target: "/workspace/inputs", ReadOnly: true},
		{Source: "/tool", Target: "/tool", ReadOnly: true},
		{Source: "/w/projects/bench/artifacts/01a1", Target: "/workspace/artifacts"},
	}, "/fresh")
	want := strings.Fields(`run -i --rm --sig-proxy=false --name secbox-n-1 --label secbox.installation=b12c --label secbox.node=n
		--label secbox.exec=n-1 --network=none --memory 1024m --user 1000:1000 --workdir /workspace/work
		--entrypoint bash --read-only --mount type=volume,source=init,target=/opt/secbox,readonly
		--mount type=bind,source=/fresh/inputs,target=/workspace/inputs,readonly
		--mount type=bind,source=/tool,target=/tool,readonly
		--mount type=bind,source=/fresh/artifacts,target=/workspace/artifacts sha256:cc79 -lc true`)
	for _, of := range []string{
		`--mount type=bind,source=/w/projects/bench/inputs,target=/workspace/inputs,readonly
			--mount type=bind,source=/w/projects/bench/artifacts/01a1,target=/workspace/artifacts`,
		`--mount type=bind,source=/run/secbox/01a1/01a1-0,target=/workspace,readonly,bind-propagation=rslave`,
	} {
		flags := ownFlags(recorded(of))
		kept := slices.Clone(flags)
		got, err := plainArgs(flags, mounts, "n-1", "n", "bash", "-lc", "true")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
		}
		if !slices.Equal(flags, kept) {
			t.Error("the recorded flags were changed")
		}
	}
	// If something were not replaced, both sides would share a name, or bench would wait for
	// core-api's own container.
	for _, missing := range []string{"--name", "--entrypoint", "secbox.node=01a1", "secbox.exec=01a1"} {
		flags := slices.DeleteFunc(recorded(""), func(arg string) bool { return strings.Contains(arg, missing) })
		if got, err := plainArgs(flags, mounts, "n-1", "n", "bash"); err == nil {
			t.Errorf("without %s: %q", missing, got)
		}
	}
}

func TestEqualArgs(t *testing.T) {
	t.Parallel()
	flags := strings.Fields(`run -i --rm --name secbox-sandbox-1 --label secbox.installation=i --label secbox.node=n --label secbox.exec=sandbox-1
		--memory 1024m --user 1000:1000 --entrypoint /opt/secbox/sandbox-init --mount type=bind,source=/w,target=/workspace sha256:cc79 --serve`)
	got, err := equalArgs(flags, "other")
	want := strings.Fields(`run -i --rm --name other --label secbox.installation=i --label secbox.node=other --label secbox.exec=sandbox-1
		--memory 1024m --user 1000:1000 --entrypoint sleep --mount type=bind,source=/w,target=/workspace sha256:cc79 infinity`)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := equalArgs(strings.Fields("run --entrypoint x image"), "other"); err == nil {
		t.Errorf("without an image id: %q", got)
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	keys := []struct {
		Wanted int `json:"wanted"`
	}{{Wanted: 2}, {Wanted: 3}}
	for _, c := range []struct {
		pool
		want bool
	}{
		{pool{}, true},
		{pool{Max: 8, Keys: keys, Idle: 5}, true},
		{pool{Max: 8, Keys: keys, Idle: 4}, false},
		{pool{Max: 4, Keys: keys, Idle: 4}, true},
		{pool{Max: 8, Keys: keys, ShortOfMemory: true}, true},
		{pool{Max: 8, NotShared: "not known yet: a container is being started"}, false},
		{pool{Max: 8, NotShared: "pool.share is false"}, true},
	} {
		if got := c.full(); got != c.want {
			t.Errorf("%+v: %v", c.pool, got)
		}
	}
}

const accepted = `[{"status":"Accepted","exitStatus":0}]`

// serveJudge is a go-judge that gives the same answer to all requests.
func serveJudge(t *testing.T, status int, answer string) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/run" ||
			!strings.Contains(string(body), `"copyIn":{"first-1/empty":{"content":""}},"cpuLimit":10000000000,`) {
			t.Errorf("%s %s: %s", r.Method, r.URL, body)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestGoJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status       int
		answer, says string // empty: no error
	}{
		{http.StatusOK, accepted, ""},
		{http.StatusOK, `[{"status":"Nonzero Exit Status","exitStatus":1}]`, "Nonzero"},
		{http.StatusOK, `[]`, "answer []"},
		{http.StatusInternalServerError, accepted, "500"},
	} {
		_, err := judged(serveJudge(t, c.status, c.answer)+"/", pythonPrint).turn(t.Context(), nil)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s gave %v", c.status, c.answer, err)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--only", "cold,speed"},
		{"--pairs", "0"},
		{"--time-limit", "1ms"},
		{"--pace", "0"},
		{"--closed-at", "4,0"},
		{"--closed-at", ""},
		{"--burst", "1025"},
		{"--go-judge", "localhost:5050"},
		{"--server", "/no/such/file"},
		{"word"},
	} {
		b := &bench{options: defaults(), log: io.Discard}
		if _, err := b.parse(append([]string{"--server", "/proc/self/exe"}, args...)); err == nil {
			t.Errorf("%q: accepted", args)
		}
	}
	if got := withoutSettings([]string{"PATH=/bin", "CORE_API_ADDR=0.0.0.0:1", "DATABASE_URL=postgres://x", "XCORE_API_Y=1"}); !slices.Equal(got,
		[]string{"PATH=/bin", "XCORE_API_Y=1"}) {
		t.Errorf("%q", got)
	}
}
