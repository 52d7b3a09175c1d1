package webhooks

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"secbox/audit"
	"secbox/fault"
)

const (
	atOnce  = 128 // tries of a node
	perHost = 4   // of them to one host

	poll     = 500 * time.Millisecond // between two looks for deliveries that are due
	lease    = time.Minute            // of a try; it ends within sendTimeout, and the database may be slow
	answerIn = 5 * time.Second        // for the end of a try, when the server shuts down

	forgetEvery = 10 * time.Minute
	forgetAfter = time.Hour // a request stores its row seconds after the delivery

	// MaxTries is how many tries stay on record.
	MaxTries = 16
)

// pauses are the times between tries: 24 hours in all, with jitter of a tenth.
var pauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
}

// pause is the time before the try after so many; false: there is none. The jitter is from 0 to 1.
func pause(attempts int, jitter float64) (time.Duration, bool) {
	if attempts > len(pauses) {
		return 0, false
	}
	return time.Duration(float64(pauses[attempts-1]) * (0.9 + 0.2*jitter)), true
}

// Records reads records of execs; see audit.Log.
type Records interface {
	Get(ctx context.Context, execID string) (audit.Record, error)
}

// Config configures a Deliverer. All fields are required unless they say otherwise.
type Config struct {
	Policy  Policy
	Store   Store
	Secrets Secrets
	Records Records
	Body    func(audit.Record) []byte // the body of a request
	TLS     *tls.Config               // nil: the roots of the system
	Logger  *slog.Logger
}

// Deliverer makes the deliveries that are due. Hosts take turns, so that one that does not answer delays no other.
type Deliverer struct {
	cfg    Config
	client *http.Client
	places chan struct{} // full: no further try
	freed  chan struct{}
	tries  sync.WaitGroup

	delivered, refused, gaveUp atomic.Int64

	mu    sync.Mutex
	busy  map[string]int    // tries by host; those without are left out
	turns map[string]uint64 // when a host was last called
	turn  uint64
}

// NewDeliverer makes a Deliverer.
func NewDeliverer(cfg Config) *Deliverer {
	return &Deliverer{
		cfg: cfg, client: newClient(cfg.Policy, cfg.TLS), places: make(chan struct{}, atOnce), freed: make(chan struct{}, 1), busy: map[string]int{}, turns: map[string]uint64{},
	}
}

// Counts are the tries since the start: those that delivered, those that did not, and how many deliveries were given up.
func (d *Deliverer) Counts() (delivered, refused, gaveUp int64) {
	return d.delivered.Load(), d.refused.Load(), d.gaveUp.Load()
}

// Run makes deliveries until ctx ends. Tries in progress end with it, and come again after their leases.
func (d *Deliverer) Run(ctx context.Context) {
	look, forget := time.NewTicker(poll), time.NewTicker(forgetEvery)
	defer look.Stop()
	defer forget.Stop()
	defer d.client.CloseIdleConnections()
	defer d.tries.Wait()
	failing := false
	for {
		err := d.fill(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			d.cfg.Logger.Warn("cannot read which webhooks are due; trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		case <-d.freed:
		case <-forget.C:
			if err := d.cfg.Store.ForgetOld(ctx, forgetAfter); err != nil && ctx.Err() == nil {
				d.cfg.Logger.Warn("cannot remove webhooks of requests that were refused", "error", err)
			}
		}
	}
}

// fill begins tries while there are places and deliveries for them.
func (d *Deliverer) fill(ctx context.Context) error {
	if len(d.places) == cap(d.places) {
		return nil
	}
	hosts, err := d.cfg.Store.Hosts(ctx)
	if err != nil {
		return err
	}
	for len(hosts) > 0 {
		host, ok := d.next(hosts)
		if !ok || len(d.places) == cap(d.places) {
			return nil
		}
		taken, err := d.cfg.Store.Take(ctx, host, lease)
		if err != nil {
			return err
		}
		if taken == nil {
			hosts = slices.DeleteFunc(hosts, func(h string) bool { return h == host })
			continue
		}
		d.begin(host)
		d.tries.Go(func() {
			defer d.end(host)
			d.try(ctx, *taken)
		})
	}
	return nil
}

// next chooses the host with a free place whose last turn was longest ago.
func (d *Deliverer) next(hosts []string) (host string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range hosts {
		if d.busy[h] < perHost && (!ok || d.turns[h] < d.turns[host]) {
			host, ok = h, true
		}
	}
	return host, ok
}

// mostTurns is how many hosts have turns that are remembered.
const mostTurns = 4096

func (d *Deliverer) begin(host string) {
	d.places <- struct{}{} // only fill fills places
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.turns) >= mostTurns {
		clear(d.turns)
	}
	d.turn++
	d.turns[host] = d.turn
	d.busy[host]++
}

func (d *Deliverer) end(host string) {
	d.mu.Lock()
	if d.busy[host]--; d.busy[host] == 0 {
		delete(d.busy, host)
	}
	d.mu.Unlock()
	<-d.places
	select {
	case d.freed <- struct{}{}:
	default:
	}
}

// try makes one request and stores how it ended.
func (d *Deliverer) try(ctx context.Context, taken Delivery) {
	at := time.Now()
	status, err := d.request(ctx, taken, at)
	if ctx.Err() != nil {
		return // the server shuts down; the try comes again after its lease
	}
	try := Try{At: at.UTC().Truncate(time.Microsecond), Status: status, MS: time.Since(at).Milliseconds()}
	delay := time.Duration(0)
	taken.State = Delivered
	if err != nil {
		try.Error = err.Error()
		again := false
		delay, again = pause(taken.Attempts, rand.Float64())
		taken.State = Due
		if !again || status == http.StatusGone {
			taken.State = Failed
		}
	}
	taken.Tries = append(taken.Tries, try)
	taken.Tries = taken.Tries[max(0, len(taken.Tries)-MaxTries):]
	d.count(taken.State)
	log := d.cfg.Logger.With("exec_id", taken.ExecID, "host", taken.Host, "attempt", taken.Attempts)
	if taken.State == Failed {
		log.Warn("a webhook was given up", "reason", try.Error, "status", status)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerIn)
	defer cancel()
	if err := d.cfg.Store.Finish(ending, taken, delay); err != nil {
		log.Warn("cannot store how the try of a webhook ended; it comes again", "error", err)
	}
}

func (d *Deliverer) count(state State) {
	if state == Delivered {
		d.delivered.Add(1)
		return
	}
	d.refused.Add(1)
	if state == Failed {
		d.gaveUp.Add(1)
	}
}

// request makes the request of a delivery. The settings may have changed since the delivery was stored.
func (d *Deliverer) request(ctx context.Context, taken Delivery, at time.Time) (status int, err error) {
	if _, err := d.cfg.Policy.Check(taken.URL); err != nil {
		return 0, err
	}
	rec, err := d.cfg.Records.Get(ctx, taken.ExecID)
	if err != nil {
		return 0, hidden(err)
	}
	body := d.cfg.Body(rec)
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"secbox-webhooks"}}
	if err := d.cfg.Secrets.sign(ctx, taken.RequestedBy, "msg_"+taken.ExecID, at, body, header); err != nil {
		return 0, hidden(err)
	}
	return send(ctx, d.client, taken.URL, header, body)
}

// hidden is an error without its cause.
func hidden(err error) error {
	e := *fault.From(err)
	e.Err = nil
	return &e
}
