package translog

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/checkpoint"
)

const (
	cosignPoll = 250 * time.Millisecond // between two looks at the log's state

	// cosignPause bounds the checkpoints that witnesses keep: at most one a second.
	cosignPause = time.Second

	// cosignMaxPause is the longest pause before a witness that failed is asked again.
	cosignMaxPause = 30 * time.Second

	cosignTimeout = 10 * time.Second // for all requests of one attempt
)

// CosignerConfig configures a Cosigner.
type CosignerConfig struct {
	Log       Log
	Origin    string
	Witnesses []checkpoint.Witness
	Verifier  func() (note.Verifier, error) // of the log's key
	Conflict  func(*Conflict)               // called when the database does not have the log that a witness has
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// Cosigner asks witnesses for cosignatures of new checkpoints, and keeps the newest of each in
// memory. No error stops the log, except a *Conflict. All witnesses that are not busy are asked for
// the same checkpoint, so that one checkpoint gets all their signatures.
type Cosigner struct {
	cfg   CosignerConfig
	peers []*peer
}

// peer is a witness and what it has cosigned.
type peer struct {
	checkpoint.Witness
	client *http.Client

	mu       sync.Mutex
	busy     bool
	cosigned checkpoint.Checkpoint // the newest, with the log's signature only
	line     string                // its signature
	size     int64                 // that the witness has, as far as known
	problem  error                 // of the last attempt
	at       time.Time             // when it was cosigned
	since    time.Time             // of the first attempt with a problem, or of the first cosignature without one
	failures int
	again    time.Time // not before
	compared bool      // its checkpoint was compared with the database
}

// WitnessStatus is what a witness has cosigned.
type WitnessStatus struct {
	Name       string
	Entries    int64     // of the newest cosigned checkpoint since the start of this process
	Root       string    // of the same
	CosignedAt time.Time // when that arrived
	Problem    error     // of the last attempt
	Since      time.Time // of the first attempt with a problem, or of the first cosignature without one; zero: not asked yet
}

// NewCosigner returns a Cosigner. It does nothing until Run.
func NewCosigner(cfg CosignerConfig) *Cosigner {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Cosigner{cfg: cfg}
	client := newWitnessClient()
	for _, w := range cfg.Witnesses {
		c.peers = append(c.peers, &peer{Witness: w, client: client})
	}
	return c
}

// Status returns what each witness has, in the order of the settings.
func (c *Cosigner) Status() []WitnessStatus {
	all := make([]WitnessStatus, len(c.peers))
	for i, p := range c.peers {
		p.mu.Lock()
		all[i] = WitnessStatus{
			Name: p.Key.Name(), Entries: p.cosigned.Tree.N, CosignedAt: p.at, Problem: p.problem, Since: p.since,
		}
		if p.line != "" {
			all[i].Root = p.cosigned.Tree.Hash.String()
		}
		p.mu.Unlock()
	}
	return all
}

// Run compares the log with the checkpoint of each witness, calls ready, and then asks for
// cosignatures until ctx ends.
func (c *Cosigner) Run(ctx context.Context, ready func()) {
	c.Compare(ctx)
	ready()
	var attempts sync.WaitGroup
	defer attempts.Wait()
	for asked, askedAt := "", (time.Time{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(cosignPoll):
		}
		now := c.cfg.Now()
		if now.Sub(askedAt) < cosignPause {
			continue
		}
		newest, err := c.newest(ctx)
		if err != nil || newest == nil { // health reports the database, and the sequencer a checkpoint that is not the log's
			continue
		}
		if newest.Signed != asked {
			asked, askedAt = newest.Signed, now
		}
		for _, p := range c.peers {
			if p.take(newest.Signed, now) {
				attempts.Go(func() { c.attempt(ctx, p, newest) })
			}
		}
	}
}

// Compare compares the log with the checkpoint of each witness.
func (c *Cosigner) Compare(ctx context.Context) {
	var attempts sync.WaitGroup
	for _, p := range c.peers {
		attempts.Go(func() { c.attempt(ctx, p, nil) })
	}
	attempts.Wait()
}

// newest returns the newest checkpoint; nil if there is none.
func (c *Cosigner) newest(ctx context.Context) (*checkpoint.Checkpoint, error) {
	state, err := c.cfg.Log.Store.State(ctx)
	if err != nil || state.Size == 0 {
		return nil, err
	}
	key, err := c.cfg.Verifier()
	if err != nil {
		return nil, err
	}
	point, err := checkpoint.Open([]byte(state.Checkpoint), key)
	return &point, err
}

// take reports whether the witness should be asked now, and makes it busy then.
func (p *peer) take(signed string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy || p.cosigned.Signed == signed || now.Before(p.again) {
		return false
	}
	p.busy = true
	return true
}

// attempt asks a witness for a cosignature, or with nil only compares the log with the checkpoint
// that it has.
func (c *Cosigner) attempt(ctx context.Context, p *peer, newest *checkpoint.Checkpoint) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy = false
	}()
	limited, cancel := context.WithTimeout(ctx, cosignTimeout)
	defer cancel()
	p.mu.Lock()
	size, compared := p.size, p.compared
	p.mu.Unlock()
	var err error
	if !compared {
		err = c.compare(limited, p)
	}
	line := ""
	if err == nil && newest != nil {
		line, size, err = c.ask(limited, p, *newest, size)
		if refused := (*disagreement)(nil); errors.As(err, &refused) {
			err = errors.Join(c.compare(limited, p), err)
		}
	}
	if ctx.Err() != nil || errors.Is(err, errNoKey) { // another node has the key
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	conflict := (*Conflict)(nil) // the sequencer logs it
	if err != nil && !errors.As(err, &conflict) && (p.problem == nil || p.problem.Error() != err.Error()) {
		c.cfg.Logger.Warn("a witness does not cosign the transparency log; execs and the log go on", "witness", p.Key.Name(), "err", err)
	} else if err == nil && p.problem != nil {
		c.cfg.Logger.Info("a witness cosigns the transparency log again", "witness", p.Key.Name())
	}
	p.problem, p.size, p.compared = err, size, err == nil
	if err != nil {
		if p.failures++; p.failures == 1 {
			p.since = c.cfg.Now()
		}
		p.again = c.cfg.Now().Add(min(cosignPause<<min(p.failures, 8), cosignMaxPause))
		return
	}
	if p.failures > 0 || p.since.IsZero() && line != "" {
		p.since = c.cfg.Now()
	}
	p.failures = 0
	if line != "" {
		p.cosigned, p.line, p.at = *newest, line, c.cfg.Now()
	}
}

// compare asks a witness for its checkpoint and compares the log with it. A checkpoint counts if
// the log's own key has signed it or, with the log's name and another key, if the witness has
// cosigned it.
func (c *Cosigner) compare(ctx context.Context, p *peer) error {
	key, err := c.cfg.Log.verifier(ctx, c.cfg.Verifier)
	if err != nil {
		return err
	}
	where := "the witness " + p.Key.Name()
	point, err := p.latest(ctx, c.cfg.Origin, key)
	other := (*otherKey)(nil)
	switch {
	case errors.As(err, &other):
		err = c.cfg.Log.CompareOther(ctx, other.Claim, checkpoint.IDOf(key), where,
			"run `core-api audit key --replaces FILE --reason …` with this checkpoint, which "+p.latestURL(c.cfg.Origin)+" serves,")
	case err == nil && point != nil:
		err = c.cfg.Log.Compare(ctx, *point, where, "remove the witness from audit.witnesses and restart")
	}
	if conflict := (*Conflict)(nil); errors.As(err, &conflict) {
		c.cfg.Conflict(conflict)
	}
	return err
}

// ask asks a witness that has a checkpoint of this size for a cosignature. It returns the size that
// the witness has.
func (c *Cosigner) ask(ctx context.Context, p *peer, newest checkpoint.Checkpoint, size int64) (line string, now int64, err error) {
	for range 3 { // it may have got a newer checkpoint from another node meanwhile
		var proof tlog.TreeProof
		if size > 0 && size < newest.Tree.N {
			proof, err = tlog.ProveTree(newest.Tree.N, size, tlog.TileHashReader(newest.Tree, tiles{ctx, c.cfg.Log.Store}))
			if err != nil {
				return "", size, damaged(err)
			}
		}
		line, err = p.add(ctx, newest, size, proof)
		var other *otherSize
		switch {
		case err == nil:
			return line, newest.Tree.N, nil
		case !errors.As(err, &other) || other.size == size:
			return "", size, err
		case other.size > newest.Tree.N:
			return "", size, &disagreement{err}
		}
		size = other.size
	}
	return "", size, err
}

// Add returns a checkpoint with the cosignatures that it has.
func (c *Cosigner) Add(signed string) string {
	if c == nil {
		return signed
	}
	for _, p := range c.peers {
		p.mu.Lock()
		if p.line != "" && p.cosigned.Text() == textOf(signed) {
			signed += p.line
		}
		p.mu.Unlock()
	}
	return signed
}

// Best returns the checkpoint with the most cosignatures that has at least so many entries; found
// is false if none has one.
func (c *Cosigner) Best(entries int64) (best checkpoint.Checkpoint, found bool) {
	if c == nil {
		return best, false
	}
	var all []checkpoint.Checkpoint
	for _, p := range c.peers {
		p.mu.Lock()
		if p.line != "" && p.cosigned.Tree.N >= entries {
			all = append(all, p.cosigned)
		}
		p.mu.Unlock()
	}
	most := 0
	for _, candidate := range all {
		n := len(slices.DeleteFunc(slices.Clone(all), func(o checkpoint.Checkpoint) bool { return o.Text() != candidate.Text() }))
		if n > most || n == most && candidate.Tree.N > best.Tree.N {
			best, most, found = candidate, n, true
		}
	}
	best.Signed = c.Add(best.Signed)
	return best, found
}

// witnessed tells of each witness, in the order of the settings, whether it has cosigned the entry.
func (c *Cosigner) witnessed(index int64) []Witnessed {
	proves, _ := c.Best(index + 1) // what Log.newest proves it with
	all := make([]Witnessed, len(c.peers))
	for i, p := range c.peers {
		p.mu.Lock()
		all[i] = Witnessed{Name: p.Key.Name(), Has: p.cosigned.Tree.N > index, Entries: p.cosigned.Tree.N}
		if p.line != "" {
			all[i].At, _ = p.time() // it was verified
			if all[i].Has && p.cosigned.Text() == textOf(proves.Signed) {
				all[i].Key = p.Public
			}
		}
		p.mu.Unlock()
	}
	return all
}

// time returns the time in the newest cosignature.
func (p *peer) time() (time.Time, error) {
	n, err := note.Open([]byte(p.cosigned.Text()+"\n"+p.line), note.VerifierList(p.Key))
	if err != nil {
		return time.Time{}, err
	}
	at, err := cosignature.CoSigV1Timestamp(n.Sigs[0])
	return at.UTC(), err
}

// await waits until a witness has cosigned a checkpoint with at least this many entries, but no
// longer than patience.
func (c *Cosigner) await(ctx context.Context, entries int64, patience time.Duration) error {
	if c == nil || len(c.peers) == 0 {
		return nil
	}
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if _, found := c.Best(entries); found {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(coverPoll):
		}
	}
	return nil
}

// textOf returns what is signed.
func textOf(signed string) string { text, _, _ := strings.Cut(signed, "\n\n"); return text + "\n" }
