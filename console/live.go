package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"secbox/api/inflight"
	"secbox/api/sse"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/runner/follow"
)

// The page of an exec that has not ended takes server-sent events from execs/:id/live: its status, each new piece of output as HTML, and its
// end. All viewers of an exec share the pieces, which the first one that needs them renders. An event's id is a place in both streams, from which
// a viewer goes on after a pause, a lost connection or a restart.

const (
	liveViewers         = 500 // at once
	liveViewersPerToken = 250
	livePrice           = 256 << 10 // memory that is counted for each viewer: its share of the pieces, and one of its own

	liveTurns = 2                      // parts of output that are rendered at once: execs need the processors, too
	livePart  = 16 << 10               // bytes of output in an event, at most
	liveKept  = 256 << 10              // bytes of events of one stream that are kept for viewers that are behind
	livePause = 500 * time.Millisecond // between events of a job that writes all the time
	liveCheck = 5 * time.Second        // between verifications of the session
	liveLife  = 10 * time.Minute       // of a stream; the browser opens the next one, which is a new request
)

// parseOffsets reads a place in both streams, of the parameter with this name; an empty text is the beginning.
func parseOffsets(name, text string) (follow.Offsets, error) {
	if text == "" {
		return follow.Offsets{}, nil
	}
	at, ok := follow.ParseOffsets(text)
	if !ok || max(at[0], at[1]) > view.MaxOutput {
		return follow.Offsets{}, fault.BadField(name, "must be two numbers of bytes up to %d, such as 120-0; reload the page", view.MaxOutput)
	}
	return at, nil
}

// liveExecs are the execs whose pages are live now.
type liveExecs struct {
	places  *inflight.Quota
	turns   *inflight.Turns // at rendering output
	closing chan struct{}
	close   func()

	mu    sync.Mutex
	drawn map[string]*drawing // by exec id
}

func newLiveExecs() *liveExecs {
	places := inflight.NewCount("live pages", liveViewers, liveViewersPerToken).
		WithTokenRefusal(fault.TooManyLivePages, "close pages of running execs that you do not need, and reload this one")
	turns := inflight.NewTurns(liveTurns, liveViewers, admission.Share{AtOnce: 1, Queue: liveViewersPerToken})
	l := &liveExecs{places: places, turns: turns, closing: make(chan struct{}), drawn: map[string]*drawing{}}
	l.close = sync.OnceFunc(func() { close(l.closing) })
	return l
}

// Close ends all live pages' streams, which do not end by themselves. Safe to call twice.
func (c *Console) Close() { c.live.close() }

// enter returns the drawing of an exec. The caller must call leave.
func (l *liveExecs) enter(execID string) (d *drawing, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d = l.drawn[execID]
	if d == nil {
		d = &drawing{}
		l.drawn[execID] = d
	}
	d.viewers++
	return d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if d.viewers--; d.viewers == 0 {
			delete(l.drawn, execID)
		}
	}
}

// drawing is the output of one exec as HTML.
type drawing struct {
	viewers int // guarded by liveExecs.mu

	mu      sync.Mutex
	streams [2]drawnStream
}

// piece is a part of the output as the data of an event.
type piece struct {
	from, to int64
	html     []byte
	after    ui.Terminal
}

// drawnStream is one stream of a drawing.
type drawnStream struct {
	begun  bool
	pieces []piece // the newest ones, without gaps
	kept   int     // bytes of them
	head   int64   // end of the last piece
	now    ui.Terminal
}

// at returns the piece that begins at an offset before the head. If there is none, it returns where the next one begins.
func (s *drawnStream) at(offset int64) (p piece, next int64, ok bool) {
	i, found := slices.BinarySearchFunc(s.pieces, offset, func(p piece, offset int64) int { return int(p.from - offset) })
	switch {
	case found:
		return s.pieces[i], 0, true
	case i < len(s.pieces):
		return piece{}, s.pieces[i].from, false
	}
	return piece{}, s.head, false
}

func (s *drawnStream) add(p piece) {
	s.pieces, s.kept, s.head = append(s.pieces, p), s.kept+len(p.html), p.to
	for s.kept > liveKept && len(s.pieces) > 1 {
		s.kept -= len(s.pieces[0].html)
		s.pieces = slices.Delete(s.pieces, 0, 1)
	}
}

// draw returns the piece that begins where a viewer is. If there is none, it returns where the next one begins, up to which the viewer must read itself.
func (d *drawing) draw(x *viewer, stream int, ended bool) (p piece, next int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, at := &d.streams[stream], x.at[stream]
	if s.begun {
		if p, next, ok = s.at(at); ok || at != s.head || at >= view.MaxOutput {
			return p, next, ok
		}
	}
	leave, err := x.turn()
	if err != nil { // the viewer has left
		return piece{}, at, false
	}
	defer leave()
	if !s.begun { // where the first viewer is
		s.now, s.head, _ = x.console.skipOutput(x.visit.ctx(), x.watch.State().Record, stream, at)
		s.begun = true
		if at != s.head || at >= view.MaxOutput {
			return piece{}, s.head, false
		}
	}
	part := parts.Get().(*[livePart]byte)
	defer parts.Put(part)
	n, err := x.watch.Read(x.visit.ctx(), stream, part[:min(livePart, view.MaxOutput-at)], at)
	p = newPiece(at, &s.now, part[:n], ended && errors.Is(err, io.EOF))
	if p.to == p.from {
		return piece{}, s.head, false
	}
	s.add(p)
	return p, 0, true
}

// parts are buffers for parts of the output.
var parts = sync.Pool{New: func() any { return new([livePart]byte) }}

// newPiece renders a text that begins at an offset of a stream.
func newPiece(from int64, now *ui.Terminal, text []byte, last bool) piece {
	html, used := now.HTML(text, last)
	return piece{from: from, to: from + int64(used), html: []byte(html), after: *now}
}

// skipOutput is skip for a stream of an exec.
func (c *Console) skipOutput(ctx context.Context, rec audit.Record, stream int, to int64) (now ui.Terminal, at int64, err error) {
	if to == 0 {
		return now, 0, nil
	}
	f, size, err := c.cfg.Runner.OpenOutput(ctx, rec, follow.Streams[stream])
	if err != nil {
		return now, 0, err
	}
	defer f.Close()
	return skip(ctx, f, size, to)
}

// skip returns the state of a terminal after a stream of some size up to an offset, or up to its end, and where that is.
func skip(ctx context.Context, f io.ReadSeeker, size, to int64) (now ui.Terminal, at int64, err error) {
	to = min(size, to)
	err = eachPart(ctx, f, 0, to, func(text []byte) (used int, err error) {
		err = admission.Do(ctx, func() error {
			used = now.Skip(text, at+int64(len(text)) == to)
			return nil
		})
		at += int64(used)
		return used, err
	})
	return now, at, err
}

// eachPart passes a file from one offset to another on, in parts of at most livePart bytes. take returns how much of a part it used: the next one
// begins there. It ends early when that is nothing.
func eachPart(ctx context.Context, f io.ReadSeeker, from, end int64, take func(text []byte) (used int, err error)) error {
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	buffer := make([]byte, 0, min(livePart, max(0, end-from)))
	for from < end && ctx.Err() == nil {
		old := len(buffer)
		buffer = buffer[:min(int64(cap(buffer)), end-from)]
		if _, err := io.ReadFull(f, buffer[old:]); err != nil {
			return err
		}
		used, err := take(buffer)
		if err != nil || used == 0 {
			return err
		}
		from += int64(used)
		buffer = append(buffer[:0], buffer[used:]...)
	}
	return ctx.Err()
}

// streamLive streams the events of an exec that has not ended.
func (c *Console) streamLive(v *visit, w http.ResponseWriter) error {
	leaveTurn, err := v.door.Turn(v.ctx())
	if err != nil {
		return err
	}
	defer leaveTurn()
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	leaveTurn()
	if err != nil {
		return err
	}
	text := v.Request().Header.Get("Last-Event-ID")
	if text == "" {
		text = v.query.Get("from")
	}
	from, err := parseOffsets("from", text)
	if err != nil {
		return err
	}
	taken, err := c.live.places.Enter(v.caller.ID, 0)
	if err != nil {
		return err
	}
	defer taken.Leave()
	if err := v.door.Reserve(livePrice); err != nil {
		return err
	}
	if v.Request().Method == http.MethodHead {
		sse.SetHeader(w.Header())
		return nil
	}
	v.verifyEvery = liveCheck
	ctx, cancel := context.WithTimeout(v.ctx(), liveLife)
	defer cancel()
	watch := c.cfg.Live.Watch(rec)
	defer watch.Close()
	drawing, leave := c.live.enter(rec.ExecID)
	defer leave()
	x := viewer{console: c, visit: v, watch: watch, drawing: drawing, out: sse.Begin(w, c.live.closing), raw: w, at: from}
	defer x.out.End()
	for more := true; more && err == nil; {
		if x.relay(ctx) {
			break
		}
		if err = x.send(); err != nil {
			break
		}
		if x.done {
			_ = x.out.Flush() // nothing follows
			break
		}
		more, err = x.out.Wait(ctx, watch.Changed(), livePause)
	}
	return nil // the browser comes again, and is told then if it may not see the exec
}

// viewer is one page that shows an exec.
type viewer struct {
	console *Console
	visit   *visit
	watch   *follow.Watch
	drawing *drawing
	out     *sse.Stream
	raw     http.ResponseWriter // of out
	asked   time.Time           // when another node was asked last, and did not answer
	at      follow.Offsets
	now     [2]*ui.Terminal // nil: not known
	state   audit.Status    // as sent
	pending []byte          // what write keeps for the next event
	done    bool
}

// send sends what the viewer does not have yet. The end comes last.
func (x *viewer) send() error {
	now := x.watch.State()
	if s := now.Record.Status; s != x.state && !s.Final() {
		x.state = s
		if err := x.out.Event("status", "", []byte(s)); err != nil {
			return err
		}
	}
	for i := range x.at {
		for more := true; more; {
			p, next, ok := x.drawing.draw(x, i, now.Ended)
			var err error
			switch before := x.at[i]; {
			case ok:
				err = x.write(i, p)
			case next > before:
				err = x.catchUp(i, next)
				more = x.at[i] > before
			default:
				more = false
			}
			if err != nil {
				return err
			}
		}
		if err := x.flush(i); err != nil {
			return err
		}
	}
	if !now.Ended && now.Gone == nil {
		return nil
	}
	// The complete page is some work: many viewers ask for it one after the other.
	x.done = true
	return x.out.Event("end", "", []byte(strconv.Itoa(min(now.Watchers*10, 5000))))
}

// write sends a piece, in one event with those after it: each of many viewers has others drawn.
func (x *viewer) write(stream int, p piece) error {
	name := follow.Streams[stream]
	if err := x.watch.Note(name+" "+x.visit.caller.ID, func() error {
		return x.console.recordDownload(x.visit, x.watch.State().Record, name, "")
	}); err != nil {
		return err
	}
	if len(x.pending)+len(p.html) > livePart {
		if err := x.flush(stream); err != nil {
			return err
		}
	}
	x.at[stream], x.now[stream], x.pending = p.to, &p.after, append(x.pending, p.html...)
	return nil
}

// flush sends what write has kept.
func (x *viewer) flush(stream int) error {
	html := x.pending
	if x.pending = x.pending[:0]; len(html) == 0 {
		return nil
	}
	return x.out.Event(follow.Streams[stream], x.at.String(), html)
}

// catchUp sends pieces that the drawing does not have any longer, up to an offset.
func (x *viewer) catchUp(stream int, to int64) error {
	for x.at[stream] < to {
		p, err := x.drawOwn(stream, to)
		if err != nil || p.to == p.from {
			return err
		}
		if err := x.write(stream, p); err != nil {
			return err
		}
	}
	return nil
}

// drawOwn returns the next piece up to an offset, for this viewer alone.
func (x *viewer) drawOwn(stream int, to int64) (piece, error) {
	leave, err := x.turn()
	if err != nil {
		return piece{}, err
	}
	defer leave()
	ctx, at := x.visit.ctx(), x.at[stream]
	if x.now[stream] == nil {
		now, _, err := x.console.skipOutput(ctx, x.watch.State().Record, stream, at)
		if err != nil {
			return piece{}, err
		}
		x.now[stream] = &now
	}
	part := parts.Get().(*[livePart]byte)
	defer parts.Put(part)
	n, err := x.watch.Read(ctx, stream, part[:min(livePart, to-at)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return piece{}, err
	}
	now := *x.now[stream]
	return newPiece(at, &now, part[:n], at+int64(n) >= to), nil
}

// turn waits until the viewer may render a part of the output: however many viewers of one token are behind, those of another one are next.
func (x *viewer) turn() (leave func(), err error) {
	return x.console.live.turns.Enter(x.visit.ctx(), x.visit.caller.ID)
}
