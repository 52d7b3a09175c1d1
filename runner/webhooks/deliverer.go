package webhooks

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"secbox/audit"
	"secbox/fault"
)

const (
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
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
	8 * time.Hour, 8 * time.Hour,
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

// Deliverer makes the deliveries that are due. Tokens and hosts take turns, so that a host that
// does not answer delays no other.
type Deliverer struct {
	cfg    Config
	client *http.Client
	turns  *turns
	freed  chan struct{}
	tries  sync.WaitGroup

	delivered, refused, gaveUp atomic.Int64
}

// NewDeliverer makes a Deliverer.
func NewDeliverer(cfg Config) *Deliverer {
	return &Deliverer{cfg: cfg, client: newClient(cfg.Policy, cfg.TLS), turns: newTurns(), freed: make(chan struct{}, 1)}
}

// Counts are numbers since the start: tries that delivered, tries that did not, and deliveries that
// were given up.
func (d *Deliverer) Counts() (delivered, refused, gaveUp int64) {
	return d.delivered.Load(), d.refused.Load(), d.gaveUp.Load()
}

// Run makes deliveries until ctx ends. Tries in progress end with it, and come again after their
// leases.
func (d *Deliverer) Run(ctx context.Context) {
	look, forget := time.NewTicker(poll), time.NewTicker(forgetEvery)
	defer look.Stop()
	defer forget.Stop()
	defer d.client.CloseIdleConnections()
	defer d.tries.Wait()
	failing, due := false, true
	for {
		err := d.fill(ctx, due)
		if err != nil && ctx.Err() == nil && !failing {
			d.cfg.Logger.Warn("cannot read which webhooks are due; trying again", "error", err)
		}
		if err != nil || due {
			failing = err != nil
		}
		due = false
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			due = true
		case <-d.freed:
		case <-forget.C:
			if err := d.cfg.Store.ForgetOld(ctx, forgetAfter); err != nil && ctx.Err() == nil {
				d.cfg.Logger.Warn("cannot remove webhooks of requests that were refused", "error", err)
			}
		}
	}
}

// fill begins tries while there are places and deliveries for them. It looks for new ones if due is
// set.
func (d *Deliverer) fill(ctx context.Context, due bool) error {
	if due {
		tokens, err := d.cfg.Store.Tokens(ctx)
		if err != nil {
			return err
		}
		d.turns.setDue(tokens)
	}
	for {
		token, except, ok := d.turns.next()
		if !ok {
			return nil
		}
		taken, err := d.cfg.Store.Take(ctx, token, except, lease)
		if err != nil {
			return err
		}
		if taken == nil {
			d.turns.none(token, except)
			continue
		}
		d.turns.begin(token, countedHost(*taken))
		d.tries.Go(func() {
			defer d.end(*taken)
			d.try(ctx, *taken)
		})
	}
}

func (d *Deliverer) end(taken Delivery) {
	d.turns.end(taken.RequestedBy, countedHost(taken))
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
	if taken.State != Due {
		taken.URL = WithoutQuery(taken.URL) // it is not needed any more
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

// request makes the request of a delivery. The settings may have changed since the delivery was
// stored.
func (d *Deliverer) request(ctx context.Context, taken Delivery, at time.Time) (status int, err error) {
	url, err := d.cfg.Secrets.openQuery(taken.ExecID, taken.URL)
	if err != nil {
		return 0, err
	}
	if _, err := d.cfg.Policy.Check(url); err != nil {
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
	return send(ctx, d.client, url, header, body)
}

// hidden is an error without its cause.
func hidden(err error) error {
	e := *fault.From(err)
	e.Err = nil
	return &e
}
