package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"secbox/api/inflight"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner"
	"secbox/tokens"
)

// The page of an exec that has not ended takes server-sent events from execs/:id/live: its status, each new piece of output as HTML, and its
// end. All viewers of an exec share one feed, which reads and renders the output once. An event's id is a place in both streams, from which
// a viewer goes on after a pause, a lost connection or a restart.

const (
	liveViewers         = 500 // at once
	liveViewersPerToken = 250
	livePrice           = 256 << 10 // memory that is counted for each viewer: its share of a feed, and a piece of its own

	livePart  = 16 << 10               // bytes of output in an event, at most
	liveKept  = 256 << 10              // bytes of events of one stream that a feed keeps for viewers that are behind
	livePause = 500 * time.Millisecond // between reads of a feed that has read all
	liveRow   = time.Second            // between reads of the row of an exec that this node does not run
	liveBeat  = 10 * time.Second       // between comments that keep a silent stream open, for which the session is verified, too
	liveCheck = 5 * time.Second        // between verifications of the session
	liveLife  = 10 * time.Minute       // of a stream; the browser opens the next one, which is a new request
	liveRetry = 2 * time.Second        // before that
)

// offsets is how many bytes of stdout and stderr a viewer has.
type offsets [2]int64

var streamNames = [2]string{"stdout", "stderr"}

func (p offsets) String() string {
	return strconv.FormatInt(p[0], 10) + "-" + strconv.FormatInt(p[1], 10)
}

// parseOffsets reads the text of offsets; an empty one is the beginning.
func parseOffsets(text string) (offsets, error) {
	var p offsets
	if text == "" {
		return p, nil
	}
	words := strings.Split(text, "-")
	for i, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || len(words) != len(p) || n < 0 || n > outputMost {
			return offsets{}, fault.BadField("from", "must be two numbers of bytes up to %d, such as 120-0; reload the page", outputMost)
		}
		p[i] = n
	}
	return p, nil
}

// feeds are those of the execs that are watched now.
type feeds struct {
	places  *inflight.Quota
	closing chan struct{}
	close   func()

	mu   sync.Mutex
	live map[string]*feed // by exec id
}

func newFeeds() *feeds {
	f := &feeds{places: inflight.NewCount("live pages", liveViewers, liveViewersPerToken), closing: make(chan struct{}), live: map[string]*feed{}}
	f.close = sync.OnceFunc(func() { close(f.closing) })
	return f
}

// Close ends all live pages' streams, which do not end by themselves. Safe to call twice.
func (c *Console) Close() { c.feeds.close() }

// piece is an event with a part of the output.
type piece struct {
	from, to int64
	event    []byte // without the id
	after    ui.Terminal
}

// feedStream is one stream of a feed.
type feedStream struct {
	pieces []piece // the newest ones, without gaps
	kept   int     // bytes of their events
	head   int64   // end of the last piece
	now    ui.Terminal
}

// at returns the piece that begins at an offset before the head. If there is none, it returns where the next one begins.
func (s *feedStream) at(offset int64) (p piece, next int64, ok bool) {
	i, found := slices.BinarySearchFunc(s.pieces, offset, func(p piece, offset int64) int { return int(p.from - offset) })
	switch {
	case found:
		return s.pieces[i], 0, true
	case i < len(s.pieces):
		return piece{}, s.pieces[i].from, false
	}
	return piece{}, s.head, false
}

func (s *feedStream) add(p piece) {
	s.pieces, s.kept, s.head = append(s.pieces, p), s.kept+len(p.event), p.to
	for s.kept > liveKept && len(s.pieces) > 1 {
		s.kept -= len(s.pieces[0].event)
		s.pieces = slices.Delete(s.pieces, 0, 1)
	}
}

// feed is the live output of one exec.
type feed struct {
	console *Console
	caller  tokens.Token // one who may see the exec
	stop    context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	viewers  map[chan struct{}]bool // woken by each change
	rec      audit.Record
	streams  [2]feedStream
	ended    bool
	recorded map[string]bool // downloads, by token and stream
}

// watch returns the feed of an exec and a channel that each change of it wakes, until leave is called.
func (c *Console) watch(v *visit, rec audit.Record, from offsets) (f *feed, wake <-chan struct{}, leave func()) {
	all, woken := c.feeds, make(chan struct{}, 1)
	all.mu.Lock()
	defer all.mu.Unlock()
	f = all.live[rec.ExecID]
	if f == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(v.ctx()))
		f = &feed{console: c, caller: v.caller, stop: stop, done: make(chan struct{}), viewers: map[chan struct{}]bool{}, rec: rec, recorded: map[string]bool{}}
		all.live[rec.ExecID] = f
		go f.run(ctx, from)
	}
	f.mu.Lock()
	f.viewers[woken] = true
	f.mu.Unlock()
	return f, woken, func() {
		all.mu.Lock()
		f.mu.Lock()
		delete(f.viewers, woken)
		last := len(f.viewers) == 0
		f.mu.Unlock()
		if last {
			delete(all.live, rec.ExecID)
		}
		all.mu.Unlock()
		if last {
			f.stop()
			<-f.done
		}
	}
}

// change changes the feed, and wakes its viewers.
func (f *feed) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
	for wake := range f.viewers {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// run reads the exec until it has ended, or the last viewer has left. It begins where the first viewer is.
func (f *feed) run(ctx context.Context, from offsets) {
	defer close(f.done)
	rec := f.rec
	for i := range f.streams {
		now, at, _ := f.console.skipOutput(ctx, rec, i, from[i])
		f.change(func() { f.streams[i].now, f.streams[i].head = now, at })
	}
	var seen runner.Progress
	for !rec.Status.Final() {
		now, err := f.console.cfg.Runner.Follow(ctx, rec.ExecID, seen)
		if err != nil {
			return
		}
		pause := livePause
		if !now.Here || now.Started != seen.Started {
			next, err := f.console.cfg.Execs.Get(ctx, f.caller, rec.ExecID)
			switch {
			case fault.Is(err, fault.UnknownExec), fault.Is(err, fault.RemovedByRetention):
				f.change(func() { f.ended = true })
				return
			case err != nil:
				now.Started, pause = seen.Started, liveRow
			case next.Status.Final():
				rec = next
				continue
			case !now.Here:
				pause = liveRow
			}
			if err == nil {
				rec = next
				f.change(func() { f.rec = rec })
			}
		}
		f.read(ctx, rec)
		seen = now
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
	f.read(ctx, rec)
	f.change(func() { f.rec, f.ended = rec, true })
}

// skipOutput is skip for a stream of an exec.
func (c *Console) skipOutput(ctx context.Context, rec audit.Record, stream int, to int64) (now ui.Terminal, at int64, err error) {
	if to == 0 {
		return now, 0, nil
	}
	f, size, err := c.cfg.Runner.OpenOutput(ctx, rec, streamNames[stream])
	if err != nil {
		return now, 0, err
	}
	defer f.Close()
	return skip(ctx, f, size, to)
}

// skip returns the state of a terminal after a stream of some size up to an offset, or up to its end, and where that is.
func skip(ctx context.Context, f io.ReadSeeker, size, to int64) (now ui.Terminal, at int64, err error) {
	to = min(size, to)
	err = eachPart(ctx, f, 0, to, func(text []byte) (int, error) {
		used := now.Skip(text, at+int64(len(text)) == to)
		at += int64(used)
		return used, nil
	})
	return now, at, err
}

// read adds the pieces of what the exec has written since the last one. An error is not passed on: the next read finds it again, and the complete
// page says what it is.
func (f *feed) read(ctx context.Context, rec audit.Record) {
	for i := range f.streams {
		s := &f.streams[i]
		_ = f.console.readParts(ctx, rec, i, s.head, outputMost, func(text []byte, last bool) (int, error) {
			p := newPiece(i, s.head, &s.now, text, last)
			if p.to > p.from {
				f.change(func() { s.add(p) })
			}
			return int(p.to - p.from), nil
		})
	}
}

// newPiece renders a text that begins at an offset of a stream.
func newPiece(stream int, from int64, now *ui.Terminal, text []byte, last bool) piece {
	html, used := now.HTML(text, last)
	var b bytes.Buffer
	b.Grow(len(html) + len(html)/16 + 32)
	b.WriteString("event: " + streamNames[stream] + "\ndata: ")
	b.WriteString(strings.ReplaceAll(html, "\n", "\ndata: "))
	b.WriteByte('\n')
	return piece{from: from, to: from + int64(used), event: b.Bytes(), after: *now}
}

// readParts is eachPart for a stream of an exec; last is set for the last part of an exec that has ended.
func (c *Console) readParts(ctx context.Context, rec audit.Record, stream int, from, to int64, take func(text []byte, last bool) (used int, err error)) error {
	f, size, err := c.cfg.Runner.OpenOutput(ctx, rec, streamNames[stream])
	if err != nil {
		return err
	}
	defer f.Close()
	return eachPart(ctx, f, from, min(size, to), func(text []byte) (int, error) {
		used, err := take(text, rec.Status.Final() && from+int64(len(text)) == size)
		from += int64(used)
		return used, err
	})
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

// live streams the events of an exec that has not ended.
func (c *Console) live(v *visit, w http.ResponseWriter) error {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return err
	}
	text := v.Request().Header.Get("Last-Event-ID")
	if text == "" {
		text = v.query.Get("from")
	}
	from, err := parseOffsets(text)
	if err != nil {
		return err
	}
	taken, err := c.feeds.places.Enter(v.caller.ID, 0)
	if err != nil {
		return err
	}
	defer taken.Leave()
	if err := v.door.Reserve(livePrice); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // of nginx, which would keep events until it has some 4 KiB of them
	if v.Request().Method == http.MethodHead {
		return nil
	}
	v.verifyEvery = liveCheck
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{}) // fails only in tests, without a connection
	feed, wake, leave := c.watch(v, rec, from)
	defer leave()
	x := viewer{visit: v, feed: feed, out: w, at: from}
	life, beat := time.NewTimer(liveLife), time.NewTicker(liveBeat)
	defer life.Stop()
	defer beat.Stop()
	_, err = fmt.Fprintf(w, "retry: %d\n\n", liveRetry.Milliseconds())
	for err == nil && !x.done {
		if err = x.send(); err != nil {
			break
		}
		if err = conn.Flush(); err != nil || x.done {
			break
		}
		select {
		case <-wake:
		case <-beat.C:
			_, err = io.WriteString(w, ":\n\n")
		case <-life.C:
			return nil
		case <-v.ctx().Done():
			return nil
		case <-c.feeds.closing:
			return nil
		}
	}
	return nil // the browser comes again, and is told then if it may not see the exec
}

// viewer is one page that shows an exec.
type viewer struct {
	visit *visit
	feed  *feed
	out   io.Writer
	at    offsets
	now   [2]*ui.Terminal // nil: not known
	state audit.Status    // as sent
	noted [2]bool         // the download
	done  bool
}

// send sends what the viewer does not have yet. The end comes last.
func (x *viewer) send() error {
	f := x.feed
	f.mu.Lock()
	rec, ended, viewers := f.rec, f.ended, len(f.viewers)
	f.mu.Unlock()
	if rec.Status != x.state && !ended {
		x.state = rec.Status
		if _, err := fmt.Fprintf(x.out, "event: status\ndata: %s\n\n", rec.Status); err != nil {
			return err
		}
	}
	for i := range x.at {
		for more := true; more; {
			before := x.at[i]
			f.mu.Lock()
			more = before < f.streams[i].head
			p, next, ok := f.streams[i].at(before)
			f.mu.Unlock()
			var err error
			switch {
			case ok:
				err = x.write(i, p)
			case more:
				err = x.catchUp(rec, i, next)
				more = x.at[i] > before
			}
			if err != nil {
				return err
			}
		}
	}
	if !ended {
		return nil
	}
	// The complete page is some work: many viewers ask for it one after the other.
	x.done = true
	_, err := fmt.Fprintf(x.out, "event: end\ndata: %d\n\n", min(viewers*10, 5000))
	return err
}

// write sends a piece.
func (x *viewer) write(stream int, p piece) error {
	if err := x.note(stream); err != nil {
		return err
	}
	x.at[stream], x.now[stream] = p.to, &p.after
	if _, err := x.out.Write(p.event); err != nil {
		return err
	}
	_, err := io.WriteString(x.out, "id: "+x.at.String()+"\n\n")
	return err
}

// catchUp sends pieces that the feed does not have any longer, up to an offset.
func (x *viewer) catchUp(rec audit.Record, stream int, to int64) error {
	c, ctx := x.feed.console, x.visit.ctx()
	if x.now[stream] == nil {
		now, _, err := c.skipOutput(ctx, rec, stream, x.at[stream])
		if err != nil {
			return err
		}
		x.now[stream] = &now
	}
	return c.readParts(ctx, rec, stream, x.at[stream], to, func(text []byte, _ bool) (int, error) {
		now := *x.now[stream]
		p := newPiece(stream, x.at[stream], &now, text, x.at[stream]+int64(len(text)) >= to)
		if p.to == p.from {
			return 0, nil
		}
		return int(p.to - p.from), x.write(stream, p)
	})
}

// note records that the caller gets output of another's exec, once for each token while the exec is watched.
func (x *viewer) note(stream int) error {
	if x.noted[stream] {
		return nil
	}
	f, name := x.feed, streamNames[stream]
	key := name + " " + x.visit.caller.ID
	f.mu.Lock()
	rec, known := f.rec, f.recorded[key]
	f.mu.Unlock()
	if !known {
		if err := f.console.recordDownload(x.visit, rec, name, ""); err != nil {
			return err
		}
		f.mu.Lock()
		f.recorded[key] = true
		f.mu.Unlock()
	}
	x.noted[stream] = true
	return nil
}
