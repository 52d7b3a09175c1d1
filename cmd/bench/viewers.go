//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	viewersOfToken = 20 // the most sessions that it has
	newerEvery     = 20 * time.Second
	viewerWarmUp   = 2 * time.Second // before the execs of each turn
)

// chatter writes a line five times per second, as long as a job may.
var chatter = shell("while true; do echo \"$(date +%T) a line of a build that goes on and on\"; sleep 0.2; done")

// viewed measures warm execs beside people who look at live pages: each has the page of one running exec, which writes output, and the history open. Their
// connections are open during their turns only, and the exec runs during all turns. The viewers' own work is on the same machine, and in the numbers.
func (b *bench) viewed(ctx context.Context, xs []*subject) (err error) {
	for _, x := range xs {
		end, err := x.watchable(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	all := map[*subject]*audience{}
	for _, x := range xs {
		a, err := x.signIn(ctx)
		if err != nil {
			return because(ctx, err)
		}
		all[x] = a
	}
	var with, without load
	execs := func(ctx context.Context, x *subject, l *load) ([]float64, error) {
		if err := sleepUntil(ctx, time.Now().Add(viewerWarmUp)); err != nil {
			return nil, err
		}
		l.begin(x.pid(), &all[x].events)
		var out []float64
		pace := &pacer{every: b.pace / 2}
		for range b.turnExecs {
			if err := pace.wait(ctx); err != nil {
				return nil, err
			}
			r, err := x.exec(ctx, commonProject, nothing)
			if err != nil {
				return nil, err
			}
			out = append(out, r.took()...)
		}
		return out, errors.Join(l.end(), calm(ctx, x))
	}
	beside := turn(func(ctx context.Context, x *subject) (out []float64, err error) {
		looking, leave := context.WithCancel(ctx)
		gone, err := all[x].look(looking)
		defer func() {
			leave()
			err = errors.Join(err, gone())
		}()
		if err != nil {
			return nil, err
		}
		return execs(ctx, x, &with)
	})
	alone := turn(func(ctx context.Context, x *subject) ([]float64, error) { return execs(ctx, x, &without) })
	what := fmt.Sprintf("warm exec beside %d viewers of live pages", b.viewers)
	return b.compare(ctx, comparison{
		section: "viewers", title: fmt.Sprintf("%s, rounds of %d execs, one every %v", what, b.turnExecs, b.pace/2), subjects: xs, rounds: b.rounds, least: leastRounds,
		sides: []side{{name: "core-api", unit: ms, turn: beside, own: true}, {name: "without viewers", unit: ms, turn: alone, own: true}},
		rows:  []row{{what: what + ", p50", other: 1, stat: paired, form: times, bound: 1.05}},
		note: func(c *Comparison) {
			people := float64(b.viewers)
			c.Notes = append(c.Notes, fmt.Sprintf("CPU time of core-api: %.2f %% of a core with the viewers, %.2f %% without, which is %.0f µs for each second of a viewer, with %.1f events",
				100*with.share(), 100*without.share(), 1e6*(with.share()-without.share())/people, float64(with.events)/with.time.Seconds()/people))
		},
	})
}

// load is the CPU time of a core-api in the turns of one side.
type load struct {
	time, cpu time.Duration
	events    int64

	pid    int
	counts *atomic.Int64
	began  time.Time
	used   time.Duration
	seen   int64
	err    error
}

func (l *load) begin(pid int, events *atomic.Int64) {
	l.pid, l.counts, l.began, l.seen = pid, events, time.Now(), events.Load()
	l.used, _, l.err = cpuOf(pid)
}

func (l *load) end() error {
	used, _, err := cpuOf(l.pid)
	l.time, l.cpu, l.events = l.time+time.Since(l.began), l.cpu+used-l.used, l.events+l.counts.Load()-l.seen
	return errors.Join(l.err, err)
}

// share is how much of a core was used.
func (l *load) share() float64 { return l.cpu.Seconds() / l.time.Seconds() }

// watchable makes an admin token, with which the subject is used from here on, and starts the exec that is watched, until end.
func (x *subject) watchable(ctx context.Context) (end func() error, err error) {
	if x.token, err = x.bench.newToken(ctx, x.server, "--role", "admin"); err != nil {
		return nil, err
	}
	long := newClient(x.url)
	long.token, long.Timeout = x.token, 0
	ended := make(chan error, 1)
	go func() {
		defer long.CloseIdleConnections()
		ended <- long.call(context.WithoutCancel(ctx), http.MethodPost, "/sandbox/execs", map[string]any{
			"project_id": "watched", "exec": map[string]any{"kind": chatter.kind, "command": chatter.command, "args": chatter.args},
			"policy_overrides": map[string]any{"timeout_ms": min(x.bench.timeLimit, 30*time.Minute).Milliseconds()},
		}, nil)
	}()
	for {
		var list struct {
			Items []result `json:"items"`
		}
		if err := x.call(ctx, http.MethodGet, "/sandbox/execs?project_id=watched&status=running", nil, &list); err != nil {
			return nil, because(ctx, err) // the server's end ends the exec
		}
		if len(list.Items) == 1 {
			x.watched = list.Items[0].ExecID
			break
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the exec that is watched ended: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return func() error {
		ctx := context.WithoutCancel(ctx)
		if err := x.call(ctx, http.MethodPost, "/sandbox/execs/"+x.watched+"/cancel", nil, nil); err != nil {
			return err
		}
		x.watched = ""
		return <-ended
	}, nil
}

// audience is the people who look at live pages.
type audience struct {
	x      *subject
	people []*http.Client // signed in
	events atomic.Int64
}

var (
	formToken = regexp.MustCompile(`name="csrf_token" value="([^"]*)"`)
	liveAt    = regexp.MustCompile(`data-at="([0-9-]+)"`)
	asksNewer = regexp.MustCompile(`hx-get="(/console/history/newer[^"]*)"`)
)

// signIn makes the people, who sign in with tokens of auditors.
func (x *subject) signIn(ctx context.Context) (*audience, error) {
	a := &audience{x: x, people: make([]*http.Client, x.bench.viewers)}
	secrets := make([]string, (len(a.people)+viewersOfToken-1)/viewersOfToken)
	for i := range secrets {
		var err error
		if secrets[i], err = x.bench.newToken(ctx, x.server, "--role", "auditor"); err != nil {
			return nil, err
		}
	}
	return a, several(ctx, len(a.people), 8, func(ctx context.Context, i int) error {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return err
		}
		a.people[i] = &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 2}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		form, err := a.get(ctx, i, "/console/sign-in")
		if err != nil {
			return err
		}
		fields := url.Values{"token": {secrets[i%len(secrets)]}, "csrf_token": {first(formToken, form)}}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+"/console/sign-in", strings.NewReader(fields.Encode()))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := a.people[i].Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusSeeOther {
			return fmt.Errorf("sign-in: %s", resp.Status)
		}
		return nil
	})
}

func first(pattern *regexp.Regexp, page string) string {
	if m := pattern.FindStringSubmatch(page); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// get requests a page as one of the people.
func (a *audience) get(ctx context.Context, i int, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.x.url+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := a.people[i].Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(body), err
}

// look opens the pages of all people, and keeps their streams and questions going until ctx ends. gone waits for that and returns what went wrong before.
func (a *audience) look(ctx context.Context) (gone func() error, err error) {
	var all errgroup.Group
	var opened sync.WaitGroup
	opening := make(chan struct{}, 8)
	errs := make(chan error, len(a.people))
	for i := range a.people {
		opened.Add(1)
		all.Go(func() error {
			opening <- struct{}{}
			stream, newer, err := a.open(ctx, i)
			<-opening
			if err != nil {
				errs <- err
				opened.Done()
				return nil
			}
			opened.Done()
			return a.follow(ctx, i, stream, newer)
		})
	}
	opened.Wait()
	gone = func() error {
		err := all.Wait()
		for _, c := range a.people {
			c.CloseIdleConnections()
		}
		return err
	}
	select {
	case err := <-errs:
		return gone, because(ctx, err)
	default:
		return gone, nil
	}
}

// open opens the history and the page of the exec with its stream. newer is what the history asks for.
func (a *audience) open(ctx context.Context, i int) (stream *http.Response, newer string, err error) {
	history, err := a.get(ctx, i, "/console/history")
	if err != nil {
		return nil, "", err
	}
	page, err := a.get(ctx, i, "/console/execs/"+a.x.watched)
	if err != nil {
		return nil, "", err
	}
	at, newer := first(liveAt, page), first(asksNewer, history)
	if at == "" || newer == "" {
		return nil, "", errors.New("the pages are not live: has the exec ended?")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.x.url+"/console/execs/"+a.x.watched+"/live?from="+at, nil)
	if err != nil {
		return nil, "", err
	}
	stream, err = a.people[i].Do(req)
	if err == nil && stream.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("stream: %s", stream.Status), stream.Body.Close())
	}
	return stream, newer, err
}

// follow reads a stream, and asks for new execs, until ctx ends.
func (a *audience) follow(ctx context.Context, i int, stream *http.Response, newer string) error {
	asked := make(chan error, 1)
	go func() {
		// Pages were opened at different times, so they ask at different times.
		next := time.Now().Add(newerEvery * time.Duration(i) / time.Duration(len(a.people)))
		for {
			if sleepUntil(ctx, next) != nil {
				asked <- nil
				return
			}
			if _, err := a.get(ctx, i, newer); err != nil && ctx.Err() == nil {
				asked <- err
				return
			}
			next = next.Add(newerEvery)
		}
	}()
	lines := bufio.NewScanner(stream.Body)
	ended := false
	for lines.Scan() {
		if line := lines.Bytes(); bytes.HasPrefix(line, []byte("id: ")) {
			a.events.Add(1)
		} else if bytes.Equal(line, []byte("event: end")) {
			ended = true
		}
	}
	_ = stream.Body.Close()
	var err error
	if ended || ctx.Err() == nil {
		err = errors.New("a stream ended while it was watched")
	}
	return errors.Join(err, <-asked)
}
