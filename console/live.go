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
	"secbox/runner/output"
)

// The page of an exec that has not ended takes server-sent events from execs/:id/live: its status,
// each new chunk of output as HTML, and its end. All viewers of an exec share the chunks, which the
// first one that needs them renders. An event's id is a place in both streams, from which a viewer
// goes on after a pause, a lost connection or a restart.

const (
	liveViewers         = 500 // at once
	liveViewersPerToken = 250
	livePrice           = 256 << 10 // memory that is counted for each viewer: its share of the chunks, and one of its own

	liveTurns = 2                      // parts of output that are rendered at once: execs need the processors, too
	livePart  = 16 << 10               // bytes of output in an event, at most
	liveKept  = 256 << 10              // bytes of events of one stream that are kept for viewers that are behind
	livePause = 500 * time.Millisecond // between events of a job that writes all the time
	liveCheck = 5 * time.Second        // between verifications of the session
	liveLife  = 10 * time.Minute       // of a stream; the browser opens the next one, which is a new request
)

// parseOffsets reads a place in both streams, of the parameter with this name; an empty text is the
// beginning.
func parseOffsets(name, text string) (follow.Offsets, error) {
	if text == "" {
		return follow.Offsets{}, nil
	}
	at, ok := follow.ParseOffsets(text)
	if !ok || max(at[0], at[1]) > view.MaxOutput {
		return follow.Offsets{}, fault.BadField(name, "must be two numbers of bytes up to %d, such as 120-0; reload the page",
			view.MaxOutput)
	}
	return at, nil
}

// liveExecs are the execs whose pages are live now.
type liveExecs struct {
	places  *inflight.Quota
	turns   *inflight.Turns // at rendering output
	closing chan struct{}
	close   func()

	mu         sync.Mutex
	renderings map[string]*rendering // by exec id
}

func newLiveExecs() *liveExecs {
	places := inflight.NewCount("live pages", liveViewers, liveViewersPerToken).
		WithTokenRefusal(fault.TooManyLivePages, "close pages of running execs that you do not need, and reload this one")
	turns := inflight.NewTurns(liveTurns, liveViewers, admission.Share{AtOnce: 1, Queue: liveViewersPerToken})
	l := &liveExecs{places: places, turns: turns, closing: make(chan struct{}), renderings: map[string]*rendering{}}
	l.close = sync.OnceFunc(func() { close(l.closing) })
	return l
}

// Close ends all live pages' streams, which do not end by themselves. Safe to call twice.
func (c *Console) Close() { c.live.close() }

// enter returns the rendering of an exec. The caller must call leave.
func (l *liveExecs) enter(execID string) (d *rendering, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d = l.renderings[execID]
	if d == nil {
		d = &rendering{}
		l.renderings[execID] = d
	}
	d.viewers++
	return d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if d.viewers--; d.viewers == 0 {
			delete(l.renderings, execID)
		}
	}
}

// rendering is the output of one exec as HTML.
type rendering struct {
	viewers int // guarded by liveExecs.mu

	mu      sync.Mutex
	streams [2]renderedStream
}

// chunk is a part of the output as the data of an event.
type chunk struct {
	from, to int64
	html     []byte
	after    ui.Terminal
}

// renderedStream is one stream of a rendering.
type renderedStream struct {
	begun  bool
	chunks []chunk // the newest ones, without gaps
	kept   int     // bytes of them
	head   int64   // end of the last chunk
	now    ui.Terminal
}

// at returns the chunk that begins at an offset before the head. If there is none, it returns where
// the next one begins.
func (s *renderedStream) at(offset int64) (p chunk, next int64, ok bool) {
	i, found := slices.BinarySearchFunc(s.chunks, offset, func(p chunk, offset int64) int { return int(p.from - offset) })
	switch {
	case found:
		return s.chunks[i], 0, true
	case i < len(s.chunks):
		return chunk{}, s.chunks[i].from, false
	}
	return chunk{}, s.head, false
}

func (s *renderedStream) add(p chunk) {
	s.chunks, s.kept, s.head = append(s.chunks, p), s.kept+len(p.html), p.to
	for s.kept > liveKept && len(s.chunks) > 1 {
		s.kept -= len(s.chunks[0].html)
		s.chunks = slices.Delete(s.chunks, 0, 1)
	}
}

// render returns the chunk that begins where a viewer is. If there is none, it returns where the
// next one begins, up to which the viewer must read itself.
func (d *rendering) render(x *viewer, stream int, ended bool) (p chunk, next int64, ok bool) {
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
		return chunk{}, at, false
	}
	defer leave()
	if !s.begun { // where the first viewer is
		s.now, s.head, _ = x.console.skipOutput(x.req.ctx(), x.watch.State().Record, stream, at)
		s.begun = true
		if at != s.head || at >= view.MaxOutput {
			return chunk{}, s.head, false
		}
	}
	part := parts.Get().(*[livePart]byte)
	defer parts.Put(part)
	n, err := x.watch.Read(x.req.ctx(), stream, part[:min(livePart, view.MaxOutput-at)], at)
	p = newChunk(at, &s.now, part[:n], ended && errors.Is(err, io.EOF))
	if p.to == p.from {
		return chunk{}, s.head, false
	}
	s.add(p)
	return p, 0, true
}

// parts are buffers for parts of the output.
var parts = sync.Pool{New: func() any { return new([livePart]byte) }}

// newChunk renders a text that begins at an offset of a stream.
func newChunk(from int64, now *ui.Terminal, text []byte, last bool) chunk {
	html, used := now.HTML(text, last)
	return chunk{from: from, to: from + int64(used), html: []byte(html), after: *now}
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

// skip returns the state of a terminal after a stream of some size up to an offset, or up to its
// end, and where that is.
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

// eachPart passes a file from one offset to another on, in parts of at most livePart bytes. take
// returns how much of a part it used: the next one begins there. It ends early when that is
// nothing.
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
func (c *Console) streamLive(req *request, w http.ResponseWriter) error {
	leaveTurn, err := req.door.Turn(req.ctx())
	if err != nil {
		return err
	}
	defer leaveTurn()
	rec, err := c.execOf(req)
	leaveTurn()
	if err != nil {
		return err
	}
	text := req.Request().Header.Get("Last-Event-ID")
	if text == "" {
		text = req.query.Get("from")
	}
	from, err := parseOffsets("from", text)
	if err != nil {
		return err
	}
	taken, err := c.live.places.Enter(req.caller.ID, 0)
	if err != nil {
		return err
	}
	defer taken.Leave()
	if err := req.door.Reserve(livePrice); err != nil {
		return err
	}
	if req.Request().Method == http.MethodHead {
		sse.SetHeader(w.Header())
		return nil
	}
	req.verifyEvery = liveCheck
	ctx, cancel := context.WithTimeout(req.ctx(), liveLife)
	defer cancel()
	watch := c.cfg.Live.Watch(rec)
	defer watch.Close()
	shared, leave := c.live.enter(rec.ExecID)
	defer leave()
	x := viewer{console: c, req: req, watch: watch, rendering: shared, out: sse.Begin(w, c.live.closing), raw: w, at: from}
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
	console   *Console
	req       *request
	watch     *follow.Watch
	rendering *rendering
	out       *sse.Stream
	raw       http.ResponseWriter // of out
	lastRelay time.Time           // when another node was asked last, and did not answer
	at        follow.Offsets
	now       [2]*ui.Terminal // nil: not known
	state     audit.Status    // as sent
	usage     output.Usage    // as sent
	pending   []byte          // what write keeps for the next event
	done      bool
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
	if now.Usage != x.usage {
		x.usage = now.Usage
		if err := x.out.Event("usage", "", view.LiveUsage(now.Record, now.Usage)); err != nil {
			return err
		}
	}
	for i := range x.at {
		for more := true; more; {
			p, next, ok := x.rendering.render(x, i, now.Ended)
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

// write adds a chunk to the next event. One event has several chunks: with many viewers, others
// have rendered some of them.
func (x *viewer) write(stream int, p chunk) error {
	name := follow.Streams[stream]
	if err := x.watch.Note(name+" "+x.req.caller.ID, func() error {
		return x.console.recordDownload(x.req, x.watch.State().Record, name, "")
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

// catchUp sends chunks that the rendering has dropped, up to an offset.
func (x *viewer) catchUp(stream int, to int64) error {
	for x.at[stream] < to {
		p, err := x.renderOwn(stream, to)
		if err != nil || p.to == p.from {
			return err
		}
		if err := x.write(stream, p); err != nil {
			return err
		}
	}
	return nil
}

// renderOwn returns the next chunk up to an offset, for this viewer alone.
func (x *viewer) renderOwn(stream int, to int64) (chunk, error) {
	leave, err := x.turn()
	if err != nil {
		return chunk{}, err
	}
	defer leave()
	ctx, at := x.req.ctx(), x.at[stream]
	if x.now[stream] == nil {
		now, _, err := x.console.skipOutput(ctx, x.watch.State().Record, stream, at)
		if err != nil {
			return chunk{}, err
		}
		x.now[stream] = &now
	}
	part := parts.Get().(*[livePart]byte)
	defer parts.Put(part)
	n, err := x.watch.Read(ctx, stream, part[:min(livePart, to-at)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return chunk{}, err
	}
	now := *x.now[stream]
	return newChunk(at, &now, part[:n], at+int64(n) >= to), nil
}

// turn waits until the viewer may render a part of the output. Tokens take turns, however many
// viewers of one token are behind.
func (x *viewer) turn() (leave func(), err error) {
	return x.console.live.turns.Enter(x.req.ctx(), x.req.caller.ID)
}
