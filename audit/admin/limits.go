package admin

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"secbox/fault"
	"secbox/internal/quota"
)

// RegistryChanged stands for the events of the registry of skills and agents, which are not
// administrative ones, in Limits and in ChangesRefused.
const RegistryChanged Kind = "registry_changed"

// bulk is the rate of changes that one token makes many of at a time: an agent's skills are
// uploaded, the users of a service move to another backend. At most, they are 86,400 events of half
// a KiB a day.
var bulk = quota.Rate{Burst: 600, PerMinute: 60}

// rates holds the rates of the kinds whose rate is not quota.Default.
var rates = map[Kind]quota.Rate{
	BaselinePromoted: bulk, BackendChosen: bulk, TokenCreated: bulk, HoldAdded: bulk, SessionExtended: bulk, PortLinked: bulk,
	RegistryChanged: bulk,
}

// reads are the kinds of what costs a client nothing, with the kinds of the events that count those
// without an event.
var reads = map[Kind]Kind{Download: DownloadsOmitted, Export: ExportsOmitted}

// ends are the kinds of changes that end what a change within the limits began. So there are no
// more of them, and they are never refused: a session, or a token that is in the wrong hands, can
// always be ended.
var ends = []Kind{SignedOut, TokenRevoked, BaselineDeleted, HoldRemoved, NodeForgotten, ImageRemoved}

// Limits limits the events that each client causes on this node, so that a client with many
// requests cannot fill the disk, nor hide other events: for each kind, it gets so many at once and
// so many a minute. A change beyond that is refused, and a read has no event; Run counts both. A
// database has one Limits, which all events that it inserts have passed. Commands and nodes have no
// limits. It is safe for concurrent use.
type Limits struct {
	Now func() time.Time // to be set before use

	limiters map[Kind]*quota.Limiter
}

// NewLimits returns the limits of a database.
func NewLimits() *Limits {
	l := &Limits{Now: time.Now, limiters: map[Kind]*quota.Limiter{}}
	for _, kind := range append(Kinds(), RegistryChanged) {
		l.limiters[kind] = quota.New(rates[kind])
	}
	return l
}

// Permit takes one event of a change from what the actor may cause: fault.TooManyChanges. What Take
// decides is permitted.
func (l *Limits) Permit(by Actor, kind Kind) error {
	if reads[kind] != "" || l.Take(by, kind) {
		return nil
	}
	rate := l.limiters[kind].Rate
	e := fault.New(fault.TooManyChanges, "too many changes of the kind %s: a token may make %d at once, and then %g a minute, because "+
		"each leaves an event; try again later",
		kind, rate.Burst, rate.PerMinute)
	e.RetryAfter = time.Duration(float64(time.Minute) / rate.PerMinute)
	return e
}

// Return gives back what Permit took for a change that changed nothing.
func (l *Limits) Return(by Actor, kind Kind) {
	if bounded(by, kind) {
		l.limiters[kind].Return(by.ID)
	}
}

// Take reports whether what the actor does now gets an event; if not, it is counted.
func (l *Limits) Take(by Actor, kind Kind) bool {
	if !bounded(by, kind) {
		return true
	}
	now := l.Now()
	if l.limiters[kind].Take(by.ID, now) {
		return true
	}
	l.limiters[kind].Omit(by.ID, quota.Once(now))
	return false
}

// bounded reports whether there is a limit for an actor. The unknown one has it, too.
func bounded(by Actor, kind Kind) bool {
	return by.Type != ByCommand && by.Type != ByNode && !slices.Contains(ends, kind)
}

const countTimeout = 2 * time.Second // of writing an event that counts others

// Run writes the counts each minute and when ctx ends, by the actor of ctx, which is a node. A
// count that cannot be written is kept.
func (l *Limits) Run(ctx context.Context, store Store, logger *slog.Logger) {
	ticker := time.NewTicker(quota.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.Count(context.WithoutCancel(ctx), store, logger)
			return
		case <-ticker.C:
			l.Count(ctx, store, logger)
		}
	}
}

// Count writes the counts now: for each client and kind, one event.
func (l *Limits) Count(ctx context.Context, store Store, logger *slog.Logger) {
	now := l.Now()
	for kind, t := range l.limiters {
		for client, n := range t.Counts(now) {
			if err := countOne(ctx, store, kind, client, n); err != nil {
				t.Omit(client, n)
				logger.Warn("cannot record how many requests got no event; trying again", "kind", string(kind), "token", client, "requests",
					n.Omitted, "error", err)
			}
		}
	}
}

func countOne(ctx context.Context, store Store, kind Kind, client string, n quota.Count) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	data := map[string]any{"count": n.Omitted, "first": n.First.UTC(), "last": n.Last.UTC()}
	counts := reads[kind]
	if counts == "" {
		counts, data["kind"] = ChangesRefused, kind
	}
	return Record(ctx, store, counts, client, data)
}

// Downloads records downloads of what other clients' execs left, within the limits of the store.
type Downloads struct {
	Store  Store
	Limits *Limits
}

// Searched is the subject of the event of a search in output.
const Searched = "search"

// RecordSearch records that the actor of the context is shown lines of the output of execs that
// have the text: the streams by the ids of the execs. If it fails, none may be sent.
func (d Downloads) RecordSearch(ctx context.Context, text string, execs map[string][]string) error {
	if !d.Limits.Take(ActorOf(ctx), Download) {
		return nil
	}
	return Record(ctx, d.Store, Download, Searched, map[string]any{"what": Searched, "text": text, "execs": execs})
}

// Record records that the actor of the context downloads the exec's file; what is stdout, stderr,
// artifact and the like, and path may be empty. If it fails, nothing may be sent.
func (d Downloads) Record(ctx context.Context, execID, what, path string) error {
	if !d.Limits.Take(ActorOf(ctx), Download) {
		return nil
	}
	data := map[string]any{"what": what}
	if path != "" {
		data["path"] = path
	}
	return Record(ctx, d.Store, Download, execID, data)
}
