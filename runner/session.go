package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/network"
	"secbox/runner/diskwatch"
	"secbox/runner/session"
	"secbox/workspace"
)

// The times of a session whose request names none.
const (
	defaultIdle = 10 * time.Minute
	defaultTTL  = time.Hour
	leastTime   = time.Second
)

// SessionTerms are what a session is asked for, beside what every exec is. They are the arguments
// of SessionCommand in its record.
type SessionTerms struct {
	Name string        // for people
	Idle time.Duration // it ends after that time without an exec; 0: ten minutes, or TTL if that is less
	TTL  time.Duration // it ends after that time; 0: an hour
}

// SessionRequest starts a session. Its Request has no command but an environment, and no inputs,
// skill, queue and standard input.
type SessionRequest struct {
	Request
	SessionTerms
}

// SessionCommand is the command in a session's record.
const SessionCommand = "session"

const (
	nameArgument = "--name="
	idleArgument = "--idle-ms="
	ttlArgument  = "--ttl-ms="
)

// Arguments are the terms as arguments.
func (t SessionTerms) Arguments() (args []string) {
	if t.Name != "" {
		args = append(args, nameArgument+t.Name)
	}
	if t.Idle != 0 {
		args = append(args, idleArgument+strconv.FormatInt(t.Idle.Milliseconds(), 10))
	}
	if t.TTL != 0 {
		args = append(args, ttlArgument+strconv.FormatInt(t.TTL.Milliseconds(), 10))
	}
	return args
}

// TermsOf returns the terms in a session's record.
func TermsOf(r audit.Record) (t SessionTerms) {
	for _, arg := range r.Args {
		if name, ok := strings.CutPrefix(arg, nameArgument); ok {
			t.Name = name
		}
		for prefix, into := range map[string]*time.Duration{idleArgument: &t.Idle, ttlArgument: &t.TTL} {
			if text, ok := strings.CutPrefix(arg, prefix); ok {
				ms, _ := strconv.ParseInt(text, 10, 64)
				*into = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return t
}

// endReasons are the reasons of the records of sessions, as sessions' own.
var endReasons = map[audit.Reason]string{
	audit.ReasonCanceled: "deleted", audit.SessionIdle: "idle", audit.SessionExpired: "expired", audit.DiskLimit: "disk",
	audit.NodeLost: "node_lost", audit.ImageMissing: "image_gone", audit.ShuttingDown: "server_stopped",
	audit.PolicyDenied: "refused", audit.Forbidden: "refused",
}

// EndReason says why a session has ended, by its closed record.
func EndReason(r audit.Record) string { return cmp.Or(endReasons[r.ErrorReason], "engine") }

// settle sets the defaults, and checks the terms.
func (t *SessionTerms) settle(maxTTL time.Duration) error {
	var bad problems
	bad.label("name", t.Name)
	if t.TTL == 0 {
		t.TTL = min(defaultTTL, maxTTL)
	}
	if t.Idle == 0 {
		t.Idle = min(defaultIdle, t.TTL)
	}
	if t.TTL < leastTime || t.TTL > maxTTL {
		bad.Add("ttl_ms", "must be from %d to %d (the setting sandbox.sessions.max_ttl_seconds)", leastTime.Milliseconds(),
			maxTTL.Milliseconds())
	} else if t.Idle < leastTime || t.Idle > t.TTL {
		bad.Add("idle_ms", "must be from %d to ttl_ms, which is %d", leastTime.Milliseconds(), t.TTL.Milliseconds())
	}
	return bad.Err()
}

// holding is the session that an exec is.
type holding struct {
	SessionTerms
	started chan struct{} // closed when its container has started
}

// StartSession starts a session, and returns its record when execs can run in it; replayed is set
// if an earlier request with the same key has started it. Its errors are Run's, and
// fault.SessionLimit. The session goes on when ctx ends.
func (r *Runner) StartSession(ctx context.Context, req SessionRequest) (record audit.Record, replayed bool, err error) {
	if err := req.settle(r.cfg.MaxTTL); err != nil {
		return audit.Record{}, false, err
	}
	if req.IdempotencyKey != "" { // before the bounds
		taken, err := r.cfg.Log.OfKey(ctx, req.RequestedBy, req.IdempotencyKey)
		if err != nil {
			return audit.Record{}, false, err
		}
		if taken != nil {
			if err = r.sameRequest(*taken, req.Request); err == nil {
				err = refusalOf(*taken)
			}
			return *taken, true, err
		}
	}
	of := req.Request
	of.session = &holding{SessionTerms: req.SessionTerms, started: make(chan struct{})}
	of.Command = Command{Kind: KindArgv, Name: SessionCommand, Args: req.Arguments(), Env: req.Command.Env}
	opened := make(chan string, 1)
	of.OnOpen = func(execID string) { opened <- execID }
	type end struct {
		result Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		defer func() {
			if cause := recover(); cause != nil { // no request is there any more that would report it
				r.cfg.Logger.Error("a session panicked", "panic", cause, "stack", string(debug.Stack()))
				e.err = fault.New(fault.Internal, "the session ended by an internal error")
			}
			ended <- e
		}()
		e.result, e.err = r.Run(ctx, of)
	}()
	defer func() { err = ofSession(err) }()
	select {
	case <-of.session.started:
		record, err = r.cfg.Log.Get(context.WithoutCancel(ctx), <-opened)
		return record, false, err
	case e := <-ended:
		if e.err == nil && !e.result.Replayed {
			e.err = fault.New(fault.SessionEnded, "session %s ended while it started: %s", e.result.Record.ExecID, e.result.Record.Detail)
		}
		return e.result.Record, e.result.Replayed, e.err
	}
}

// ofSession names the fields of a session's request that are an exec's otherwise.
func ofSession(err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	named := *e
	named.Fields, named.Message = slices.Clone(e.Fields), strings.ReplaceAll(e.Message, "exec.env", "env")
	for i := range named.Fields {
		named.Fields[i].Field = strings.TrimPrefix(named.Fields[i].Field, "exec.")
	}
	return &named
}

// terms are the terms of the session that the exec is.
func (x *exec) terms() session.Terms {
	of := x.req.session
	return session.Terms{
		Token: gateName(x.req.RequestedBy), Idle: of.Idle, TTL: of.TTL, Env: x.req.Command.Env,
		Cwd: x.req.Command.Cwd, Snapshot: x.snapshot, Image: x.image,
		Watch: func() func() {
			w := x.cfg.Disk.Begin(diskwatch.Writer{Project: x.project, ExecID: x.record.ExecID, Open: x.unlinked, Kill: x.command.Kill})
			w.Start()
			return w.End
		},
		Used: func(s session.Samples) { x.used = s },
	}
}

// ExtendSession sets the times of a session that runs on this node, from now on; zero leaves one as
// it is. Nothing is set after an error of record, which is called when the times are allowed.
// fault.SessionEnded.
func (r *Runner) ExtendSession(id string, idle, ttl time.Duration, record func() error) error {
	state, err := r.Session(id)
	if err != nil {
		return err
	}
	now := r.cfg.Now()
	var bad problems
	if most := state.StartedAt.Add(r.cfg.MaxTTL).Sub(now); ttl != 0 && (ttl < leastTime || ttl > most) {
		bad.Add("ttl_ms", "must be from %d to %d: the session started at %s, and no one runs longer than %s (the setting "+
			"sandbox.sessions.max_ttl_seconds)", leastTime.Milliseconds(), max(most, leastTime).Milliseconds(),
			state.StartedAt.UTC().Format(time.RFC3339), r.cfg.MaxTTL)
	}
	if idle != 0 && (idle < leastTime || idle > r.cfg.MaxTTL) {
		bad.Add("idle_ms", "must be from %d to %d", leastTime.Milliseconds(), r.cfg.MaxTTL.Milliseconds())
	}
	if err := bad.Err(); err != nil {
		return err
	}
	if err := record(); err != nil {
		return err
	}
	return r.sessions.Extend(id, idle, ttl)
}

// EndContext ends an interpreter of a session that runs on this node; false if there is none.
func (r *Runner) EndContext(id, name string) bool { return r.sessions.EndContext(id, name) }

// Inside returns the means to start programs of sandbox-init in a session; see session.Inside.
func (r *Runner) Inside(id string) session.Inside { return r.sessions.Inside(id) }

// Visitor is who uses a port of a session.
type Visitor = network.Visitor

// DialPort connects a visitor to a port of a session that runs on this node, on record. The caller
// must close the connection. Errors are as of session.Set's Dial and
// network.Network's Visit.
func (r *Runner) DialPort(ctx context.Context, id string, v Visitor, port uint16) (net.Conn, error) {
	return r.cfg.Network.Visit(ctx, id, v, port, func(ctx context.Context) (net.Conn, error) { return r.sessions.Dial(ctx, id, port) })
}

// mostResults is how many bytes of results an answer has.
const mostResults = 256 << 10

// shownResults are the results of a cell of Python, which are among its artifacts; nil if there are
// none. A note tells of results that no answer can have.
func shownResults(project *workspace.Project, record audit.Record, left []Artifact) (results []byte, note string) {
	i := slices.IndexFunc(left, func(a Artifact) bool { return a.Path == session.ResultsFile })
	if record.Context == "" || record.Cmd != KindPython || i < 0 {
		return nil, ""
	}
	if size := left[i].Size; size > mostResults {
		return nil, fmt.Sprintf("its results have %d bytes, more than an answer: read the artifact %s", size, session.ResultsFile)
	}
	content, err := project.ReadCollected(record.ExecID, session.ResultsFile, mostResults)
	if err != nil || !session.ValidResults(content) {
		return nil, "its results are none that an answer can have: see the artifact " + session.ResultsFile
	}
	return content, ""
}

// recorded are the files that core-api adds to the artifacts, beside output and metadata.
func (x *exec) recorded(t *tty) []workspace.File {
	files := t.recording(x)
	if len(x.used.Samples) > 0 {
		files = append(files, workspace.File{Name: UsageFile, Content: bytes.NewReader(x.used.JSON())})
	}
	return files
}

// UsageFile has what the container of a session used, among the files that core-api adds:
// session.Samples as JSON.
const UsageFile = workspace.UsageName

// mostUsage is larger than any UsageFile, in bytes.
const mostUsage = 1 << 20

// SessionUsage returns what the container of a session used, or has used so far on this node; none
// if that is not known.
func (r *Runner) SessionUsage(ctx context.Context, rec audit.Record) (session.Samples, error) {
	if !rec.Status.Final() {
		return r.sessions.Usage(rec.ExecID), nil
	}
	f, _, err := r.OpenPublished(ctx, rec, UsageFile)
	if fault.Is(err, fault.UnknownArtifact) {
		return session.Samples{}, nil
	}
	if err != nil {
		return session.Samples{}, err
	}
	defer f.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(f, mostUsage))
	if err != nil {
		return session.Samples{}, err
	}
	return session.ReadSamples(text)
}

// Session returns a session that runs on this node; fault.SessionEnded.
func (r *Runner) Session(id string) (session.State, error) {
	state, running := r.sessions.State(id)
	if !running {
		return session.State{}, session.Ended(id)
	}
	return state, nil
}
