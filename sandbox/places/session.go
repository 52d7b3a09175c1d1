package places

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/engine"
	"secbox/fault"
	"secbox/runner/session"
	"secbox/sandbox"
	"secbox/sandbox/inside"
)

// Session is the files of a session, for any path that its execs' user may reach.
type Session struct{ In session.Inside }

var _ Files = Session{}

// Bounds of an operation: what its program may write beside content, and its time.
const (
	mostAnswer   = 1 << 20
	quickTime    = time.Minute
	transferTime = 40 * time.Minute // the caller's bound is less
	watchTime    = 24 * time.Hour
	endTime      = 2 * time.Second // for the program's end after its answer
)

// run runs an operation. content, if not nil, gets what follows the answer, and ends before run
// does.
func (s Session) run(ctx context.Context, r inside.Request, stdin io.Reader, timeout time.Duration, most int64,
	content func(inside.Answer, *bufio.Reader) error,
) (answer inside.Answer, err error) {
	name := string(r.Path)
	for _, p := range [][]byte{r.Path, r.To} {
		if _, err := sandbox.Clean(r.Op, string(p), ""); err != nil && p != nil {
			return answer, err
		}
	}
	request, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	start := s.In.Run
	if r.Op == inside.Watch || r.Op == inside.Processes { // they only look
		start = s.In.Watch
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	var exit engine.Exit
	var failed error
	var running sync.WaitGroup
	running.Go(func() {
		exit, failed = start(within, engine.Job{
			Argv: []string{inside.Verb, string(request)}, Stdin: stdin, Timeout: timeout, MaxStdout: most + mostAnswer,
		}, to)
		to.Close()
	})
	out := bufio.NewReaderSize(from, 64<<10)
	line, err := readLine(out)
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	said := err == nil
	if said && answer.Code == "" && content != nil {
		err = content(answer, out)
	}
	if err != nil {
		cancel()
	}
	from.Close()
	late := time.AfterFunc(endTime, cancel)
	defer late.Stop()
	running.Wait()
	switch {
	case ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case failed != nil && !errors.Is(failed, context.Canceled):
		if lost, ok := errors.AsType[*engine.RunError](failed); ok && lost.Started && changes(r.Op) {
			failed = fault.Wrap(fault.OutcomeUnknown, failed, "the session ended during the operation on %s, which may be done in part", cut(name))
		}
		return answer, failed
	case !said && exit.Code == notInside:
		return answer, fault.New(fault.Unsupported, "the sandbox-init of the session's image is too old for file operations; rebuild the image "+
			"(make images), and start another session")
	case !said:
		return answer, fault.New(fault.OutcomeUnknown, "the program for the operation %s %s did not answer: it took too long, or was killed by "+
			"a command of the session, or the session's memory is used up", r.Op, cut(name))
	case err != nil:
		return answer, err
	}
	return answer, failedAs(answer, r)
}

// changes reports whether an operation changes files.
func changes(op string) bool {
	return slices.Contains([]string{inside.Write, inside.MakeDir, inside.Move, inside.Remove}, op)
}

// notInside is the exit code of a sandbox-init that does not know inside.Verb.
const notInside = 3

// readLine reads a line of at most mostAnswer bytes.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > mostAnswer {
			return nil, errors.New("the answer is too long")
		}
	}
}

// failedAs returns the error of a code.
func failedAs(a inside.Answer, r inside.Request) error {
	name := string(r.Path)
	as := func(err error) error { return &fs.PathError{Op: r.Op, Path: name, Err: err} }
	switch a.Code {
	case "":
		return nil
	case inside.Missing:
		if r.Op == inside.Write || r.Op == inside.MakeDir { // missing directories are made: one above it is a file
			return as(fs.ErrExist)
		}
		return as(fs.ErrNotExist)
	case inside.Exists:
		return as(fs.ErrExist)
	case inside.Denied:
		return as(fs.ErrPermission)
	case inside.Kind, inside.Invalid:
		return as(fs.ErrInvalid)
	case inside.NotEmpty:
		return notEmpty(name)
	case inside.Part:
		return notWhole(name, as(fs.ErrPermission))
	case inside.Changed:
		return changed(name)
	case inside.Large:
		return tooLarge(name, a.File.Size, int64(r.Limit))
	case inside.Full:
		return fault.New(fault.DiskFull, "there is no room for %s: the directory is full, or the disk", cut(name))
	case inside.OtherDisk:
		return fault.New(fault.InputConflict, "%s and %s are on different file systems; read and write the file, or use mv", cut(name),
			cut(string(r.To)))
	}
	return fault.New(fault.InputConflict, "the file system refuses the operation on %s; try it with a command, which says why", cut(name))
}

// notWhole is the error of a directory that may be removed in part.
func notWhole(name string, why error) error {
	return fault.Wrap(fault.OutcomeUnknown, why, "the directory %s could not be removed whole, and a part of it may be gone: what is left may not be "+
		"changed by the jobs' user; list it, and remove the rest with a command", cut(name))
}

func notEmpty(name string) error {
	return fault.New(fault.InputConflict, "the directory %s is not empty; remove what is in it, too, with recursive=true", cut(name))
}

// Event is a change in a watched directory.
type Event struct {
	Kind string // one of inside.EventKinds
	Path string // any bytes
	Dir  bool
}

// mostEvents is how many bytes of events one watch has. Then it ends, and a client comes again.
const mostEvents = 64 << 20

// Watch calls begun when it watches a directory, and with all the directories below it, and then
// each for every change, until one of them fails or the directory is gone.
func (s Session) Watch(ctx context.Context, name string, all bool, begun func(), each func(Event) error) error {
	request := inside.Request{Op: inside.Watch, Path: []byte(name), All: all}
	_, err := s.run(ctx, request, nil, watchTime, mostEvents, func(_ inside.Answer, r *bufio.Reader) error {
		begun()
		for {
			line, err := readLine(r)
			if errors.Is(err, io.EOF) {
				return nil
			}
			var e inside.Event
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				return err
			}
			if !slices.Contains(inside.EventKinds, e.Kind) || len(e.Path) > 2*sandbox.MaxPathBytes {
				return errImplausible
			}
			if err := each(Event{e.Kind, string(e.Path), e.Dir}); err != nil {
				return err
			}
		}
	})
	return err
}

// List implements Files.
func (s Session) List(ctx context.Context, name, after string, limit int) (l Listing, err error) {
	a, err := s.list(ctx, name, after, limit)
	if err != nil {
		return l, err
	}
	if l.Entry, err = entry(a.File); err != nil {
		return l, err
	}
	l.Name = path.Base(path.Clean(name))
	if len(a.Entries) > limit {
		return l, errImplausible
	}
	for _, e := range a.Entries {
		one, err := entry(e)
		if err != nil || one.Name <= after {
			return Listing{}, errImplausible
		}
		l.Entries, after = append(l.Entries, one), one.Name
	}
	if a.More {
		if l.Next = string(a.Last); l.Next < after || len(l.Next) > sandbox.MaxNameBytes {
			return Listing{}, errImplausible
		}
	}
	return l, nil
}

func (s Session) list(ctx context.Context, name, after string, limit int) (inside.Answer, error) {
	return s.run(ctx, inside.Request{Op: inside.List, Path: []byte(name), After: []byte(after), Limit: limit}, nil, quickTime, 0, nil)
}

var errImplausible = fault.New(fault.OutcomeUnknown, "a process of the session has changed the answer of the program for file operations")

// entry checks a description: a process of the session may have written it.
func entry(e inside.Entry) (Entry, error) {
	name := string(e.Name)
	if name == "" || len(name) > sandbox.MaxNameBytes || name != "/" && strings.Contains(name, "/") || e.Size < 0 ||
		e.Modified.Year() > 9999 {
		return Entry{}, errImplausible
	}
	return Entry{name, e.Mode, e.Size, e.Modified}, nil
}

// Read implements Files.
func (s Session) Read(ctx context.Context, name string, most int64, reserve func(int64) error) (content []byte, err error) {
	var b bytes.Buffer
	_, err = s.run(ctx, inside.Request{Op: inside.Read, Path: []byte(name), Limit: int(most), All: true}, nil, quickTime, framed(most),
		func(a inside.Answer, r *bufio.Reader) error {
			size := a.File.Size // 0 of a file of the kernel's, whatever it has
			if size <= 0 || size > most {
				size = most
			}
			if err := reserve(2 * size); err != nil {
				return err
			}
			n, err := b.ReadFrom(io.LimitReader(&inside.ChunkReader{R: r}, size+1))
			if err == nil && n > size {
				err = tooLarge(name, n, size)
			}
			return cutOff(err, name)
		})
	if err != nil {
		return nil, err
	}
	return append([]byte{}, b.Bytes()...), nil
}

// framed is how many bytes the chunks of content have.
func framed(content int64) int64 { return content + content/64 + 1024 }

// cutOff is the error of content without an end.
func cutOff(err error, name string) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Wrap(fault.OutcomeUnknown, err, "the content of %s is cut off: it changed while it was read, or the program that reads it was killed",
			cut(name))
	}
	return err
}

// Open implements Files.
func (s Session) Open(ctx context.Context, name string) (Opened, error) {
	a, err := s.list(ctx, name, "", 0)
	switch {
	case err != nil:
		return Opened{}, err
	case !a.File.Mode.IsRegular():
		return Opened{}, sandbox.Invalid("open", name)
	case a.File.Size < 0 || a.File.Size > sandbox.MaxFileBytes:
		return Opened{}, tooLarge(name, a.File.Size, sandbox.MaxFileBytes)
	}
	return Opened{&reader{ctx: ctx, in: s, name: name, size: a.File.Size}, a.File.Size, a.File.Modified}, nil
}

// reader reads a file of a session from any offset.
type reader struct {
	ctx  context.Context
	in   Session
	name string
	size int64

	at     int64
	pipe   *io.PipeReader // of the program that reads; nil: none
	cancel context.CancelFunc
	done   chan struct{} // closed when the program has ended
}

// Seek implements io.Seeker.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	if offset != r.at {
		r.stop()
		r.at = offset
	}
	return offset, nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if r.pipe == nil {
		r.start()
	}
	n, err := r.pipe.Read(p[:min(int64(len(p)), r.size-r.at)])
	r.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // it has shrunk
	}
	return n, err
}

func (r *reader) start() {
	ctx, cancel := context.WithCancel(r.ctx)
	pipe, w := io.Pipe()
	r.pipe, r.cancel, r.done = pipe, cancel, make(chan struct{})
	left := r.size - r.at
	request := inside.Request{Op: inside.Read, Path: []byte(r.name), Offset: r.at, Limit: int(left)}
	go func() {
		defer close(r.done)
		_, err := r.in.run(ctx, request, nil, transferTime, framed(left), func(_ inside.Answer, from *bufio.Reader) error {
			_, err := io.CopyBuffer(w, struct{ io.Reader }{io.LimitReader(&inside.ChunkReader{R: from}, left)}, make([]byte, 64<<10))
			return cutOff(err, r.name)
		})
		w.CloseWithError(err)
	}()
}

func (r *reader) stop() {
	if r.pipe != nil {
		r.cancel()
		r.pipe.Close()
		<-r.done
		r.pipe = nil
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.stop()
	return nil
}

// Write implements Files.
func (s Session) Write(ctx context.Context, name string, r io.Reader, was string) (before string, err error) {
	a, err := s.list(ctx, name, "", 0)
	absent := errors.Is(err, fs.ErrNotExist)
	request := inside.Request{Op: inside.Write, Path: []byte(name)}
	switch { // refuse a hopeless request before its content is sent
	case err != nil && !absent:
		return "", err
	case !absent && !a.File.Mode.IsRegular():
		return "", sandbox.Invalid("write", name)
	case was != "" && absent != (was == sandbox.Absent):
		return was, changed(name)
	case was == sandbox.Absent:
		before, request.Version = was, inside.Absent
	case was != "":
		before, request.Version = was, a.Version
		if err := s.compare(ctx, name, a, was); err != nil {
			return before, err
		}
	case absent:
		before = sandbox.Absent
	default:
		before = digestNow(ctx, s, name)
	}
	chunks := &chunker{r: r}
	_, err = s.run(ctx, request, chunks, transferTime, 0, nil)
	if failed := chunks.stop(); failed != nil {
		err = failed
	}
	return before, err
}

// compare checks the digest of a file of the version that an answer has.
func (s Session) compare(ctx context.Context, name string, a inside.Answer, was string) error {
	if a.File.Size < 0 || a.File.Size > sandbox.MaxFileBytes || a.Version == "" {
		return changed(name)
	}
	request := inside.Request{Op: inside.Read, Path: []byte(name), Limit: int(a.File.Size), Version: a.Version}
	_, err := s.run(ctx, request, nil, transferTime, framed(a.File.Size), func(_ inside.Answer, from *bufio.Reader) error {
		digest, err := digestOf(ctx, io.LimitReader(&inside.ChunkReader{R: from}, a.File.Size+1))
		if err == nil && digest != was {
			err = changed(name)
		}
		return cutOff(err, name)
	})
	return err
}

// chunker reads content as chunks. An error of r ends it without the chunk that ends the content.
type chunker struct {
	r    io.Reader
	buf  []byte // of the present chunk
	rest []byte // of buf

	mu     sync.Mutex
	over   bool
	failed error
}

// Read implements io.Reader.
func (c *chunker) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.buf == nil {
			c.buf = make([]byte, 4+64<<10)
		}
		if c.done() {
			return 0, io.EOF
		}
		n, err := io.ReadAtLeast(c.r, c.buf[4:], 1)
		if c.end(n, err) {
			return 0, io.EOF
		}
		binary.BigEndian.PutUint32(c.buf, uint32(n))
		c.rest = c.buf[:4+n]
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *chunker) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end notes the end of r, and reports whether the chunks end here.
func (c *chunker) end(n int, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return true
	}
	if err == nil {
		return false
	}
	c.over = true
	if n == 0 && errors.Is(err, io.EOF) {
		return false // an empty chunk ends the content
	}
	c.failed = err
	return true
}

// stop returns why the content is incomplete; nil if it was complete, or not read to its end.
func (c *chunker) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.failed
}

// MakeDir implements Files.
func (s Session) MakeDir(ctx context.Context, name string) error {
	_, err := s.run(ctx, inside.Request{Op: inside.MakeDir, Path: []byte(name)}, nil, quickTime, 0, nil)
	return err
}

// Move implements Files.
func (s Session) Move(ctx context.Context, name, to string, replace bool) error {
	_, err := s.run(ctx, inside.Request{Op: inside.Move, Path: []byte(name), To: []byte(to), All: replace}, nil, quickTime, 0, nil)
	return unmoved(ctx, s, name, to, err)
}

// Remove implements Files.
func (s Session) Remove(ctx context.Context, name string, all bool) error {
	_, err := s.run(ctx, inside.Request{Op: inside.Remove, Path: []byte(name), All: all}, nil, transferTime, 0, nil)
	return err
}
