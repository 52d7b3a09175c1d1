package relay

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"secbox/cluster/peer"
	"secbox/fault"
	"secbox/sandbox/remote"
)

// Prefix is the prefix of the paths that nodes ask each other for.
const Prefix = "/internal/machines"

const (
	listPath     = Prefix
	callPath     = Prefix + "/call"
	linkPath     = Prefix + "/link"
	transferPath = Prefix + "/transfers/"
)

const tagDigits = 8 // of an id of a transfer

// ServeHTTP answers the requests of other nodes, whose paths begin with Prefix.
func (m *Machines) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.peers == nil {
		http.NotFound(w, r)
		return
	}
	sender, err := m.peers.Sender(r)
	if err != nil {
		http.Error(w, fault.From(err).Message, http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	caller := remote.Caller{TokenID: query.Get("token"), UserID: query.Get("user")}
	id, isTransfer := strings.CutPrefix(r.URL.Path, transferPath)
	switch {
	case isTransfer:
		m.hub.ServeTransfer(w, r, id, caller)
	case r.Method != http.MethodGet:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case r.URL.Path == listPath:
		_ = gob.NewEncoder(w).Encode(m.hub.Machines())
	case r.URL.Path == linkPath:
		m.hub.ServeRelayed(w, r, caller)
	case r.URL.Path == callPath:
		m.serveCall(w, r, sender)
	default:
		http.NotFound(w, r)
	}
}

// about returns a path with the caller of a runner's request.
func about(path string, caller remote.Caller) string {
	return path + "?" + url.Values{"user": {caller.UserID}, "token": {caller.TokenID}}.Encode()
}

// ServeLink answers GET /ws, as remote.Hub does.
func (m *Machines) ServeLink(w http.ResponseWriter, r *http.Request, caller remote.Caller) {
	m.hub.ServeLink(w, r, caller)
}

// elsewhere implements remote.Config.Elsewhere.
func (m *Machines) elsewhere(ctx context.Context, caller remote.Caller, name string) *websocket.Conn {
	for _, other := range m.known(ctx, missFor) {
		if other.UserID != caller.UserID || other.Name != name {
			continue
		}
		conn, err := m.dial(ctx, other.NodeID, about(linkPath, caller))
		if err == nil {
			return conn
		}
		m.log.Warn("the node that has a runner's machine does not answer; the runner's commands there are lost", "node", other.NodeID,
			"user", caller.UserID, "runner", name, "error", err)
	}
	return nil
}

// ServeTransfer answers HEAD, PUT and GET of /ws/transfers/{id}, as remote.Hub does.
func (m *Machines) ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller remote.Caller) {
	node := ""
	if m.peers != nil && len(id) > tagDigits && id[:tagDigits] != peer.Tag(m.self) {
		var err error
		if node, err = m.peers.Tagged(r.Context(), id[:tagDigits]); err != nil {
			m.log.Warn("a transfer cannot be passed on", "error", err)
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
	}
	if node == "" {
		m.hub.ServeTransfer(w, r, id, caller)
		return
	}
	ctx, end := m.peers.While(r.Context(), node)
	defer end()
	to, err := m.peers.URL(ctx, node, about(transferPath+url.PathEscape(id), caller))
	if err != nil {
		http.Error(w, fault.From(err).Message, http.StatusServiceUnavailable)
		return
	}
	target, err := url.Parse(to)
	if err != nil {
		http.Error(w, "malformed node.address", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the other node answers when nothing arrives
	_ = control.SetWriteDeadline(time.Time{})
	w.Header().Set("Connection", "close") // its deadlines must not apply to another request, and the rest of a body is not waited for
	out := &pacedWriter{w, control, m.stall}
	defer out.extend() // for what is still in the server's buffer
	proxy := httputil.ReverseProxy{
		Transport: m.peers.Transport(), FlushInterval: -1, ErrorLog: nil,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, ""
			for _, name := range []string{"Authorization", "Cookie"} {
				p.Out.Header.Del(name)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			m.log.Info("a transfer that is passed on has broken off", "node", node, "error", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(out, r.WithContext(ctx))
}

// serveCall does what another node asks for, as long as that node is not retired.
func (m *Machines) serveCall(w http.ResponseWriter, r *http.Request, sender string) {
	m.gate.Lock()
	closed := m.closed
	if !closed {
		m.inbound.Add(1)
	}
	m.gate.Unlock()
	if closed {
		http.Error(w, "this node is shutting down", http.StatusServiceUnavailable)
		return
	}
	defer m.inbound.Done()
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	ctx, cancel := m.peers.While(m.ctx, sender)
	defer cancel()
	conn.SetReadLimit(maxCall)
	first, stop := context.WithTimeout(ctx, sendTimeout(maxCall))
	_, message, err := conn.Read(first)
	stop()
	var c call
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(message)).Decode(&c)
	}
	if err != nil {
		m.log.Debug("a call of another node has not arrived", "error", err)
		return
	}
	conn.SetReadLimit(1 + maxPiece)
	within, cancelCall := context.WithCancel(ctx)
	defer cancelCall()
	served := &served{conn: conn, ctx: ctx, cancel: cancelCall, signals: make(chan syscall.Signal, 16)}
	served.cond.L = &served.mu
	go served.receive()
	a, err := m.perform(within, sender, c, served)
	served.close()
	a.Failure = failureOf(err)
	var out bytes.Buffer
	out.WriteByte(kindAnswer)
	if err := gob.NewEncoder(&out).Encode(a); err != nil {
		m.log.Error("cannot encode the answer to another node", "error", err)
		return
	}
	if err := conn.Write(ctx, websocket.MessageBinary, out.Bytes()); err != nil {
		m.log.Warn("the answer to another node did not arrive", "op", c.Op, "exec", execID(c), "error", err)
		return
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
}

func execID(c call) string {
	if c.Spec == nil {
		return ""
	}
	return c.Spec.ExecID
}

// perform makes the call to the hub.
func (m *Machines) perform(ctx context.Context, sender string, c call, s *served) (a answer, err error) {
	switch c.Op {
	case opExec:
		if c.Spec == nil {
			return a, errMalformed
		}
		if err := m.onRecord(ctx, c.Spec.ExecID, sender, c.User); err != nil {
			return a, err
		}
		spec := *c.Spec
		spec.User = c.User
		if c.Input {
			spec.StdinFrom = s
		}
		if c.Signals {
			spec.Signals = s.signals
		}
		a.Result, err = m.hub.ExecTo(ctx, spec, output{s, kindStdout}, output{s, kindStderr})
	case opRead:
		a.N, err = m.hub.ReadFileTo(ctx, c.Path, output{s, kindStdout}, c.User)
	case opWrite:
		a.N, err = m.hub.WriteFileFrom(ctx, c.Path, s, c.Perm, c.User)
	case opReplace:
		a.N, err = m.hub.ReplaceFile(ctx, c.Path, s, c.Was, c.User)
	case opStat:
		a.Info, err = m.hub.Stat(ctx, c.Path, c.User)
	case opReadDir:
		a.Entries, err = m.hub.ReadDir(ctx, c.Path, c.User)
	case opMkdirAll:
		err = m.hub.MkdirAll(ctx, c.Path, c.Perm, c.User)
	case opRemove:
		err = m.hub.Remove(ctx, c.Path, c.User)
	case opRemoveAll:
		err = m.hub.RemoveAll(ctx, c.Path, c.User)
	case opClose:
		err = m.hub.CloseForUser(c.User)
	default:
		err = errMalformed
	}
	return a, err
}

var errMalformed = fault.New(fault.Unsupported, "this node does not know the call; update core-api on it")

// served is the side of a call that does it.
type served struct {
	conn    *websocket.Conn
	ctx     context.Context    // of the connection
	cancel  context.CancelFunc // of the call
	signals chan syscall.Signal

	mu     sync.Mutex
	cond   sync.Cond
	data   []byte // content that has arrived, at most window
	ended  error  // io.EOF, or why the content ends before its end
	closed bool
}

// receive handles the caller's messages to the end of the call. When the caller has left, the call
// is canceled.
func (s *served) receive() {
	defer s.cancel()
	for {
		_, message, err := s.conn.Read(s.ctx)
		if err != nil {
			s.end(errLeft)
			return
		}
		if len(message) == 0 {
			continue
		}
		switch kind, message := message[0], message[1:]; kind {
		case kindContent:
			if !s.take(message) {
				s.end(errLeft)
				return
			}
		case kindEnd:
			s.end(io.EOF)
		case kindAbort:
			s.end(errAborted)
		case kindCancel:
			s.cancel()
		case kindSignal:
			if len(message) == 1 {
				select {
				case s.signals <- syscall.Signal(message[0]):
				default: // the command takes none now
				}
			}
		}
	}
}

var (
	errLeft    = errors.New("the node that asked has left")
	errAborted = errors.New("the content has broken off")
)

// take keeps a piece of content; false if it is more than was asked for.
func (s *served) take(piece []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	if len(s.data)+len(piece) > window {
		return false
	}
	s.data = append(s.data, piece...)
	s.cond.Broadcast()
	return true
}

func (s *served) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = why
	}
	s.cond.Broadcast()
}

// close ends a Read under way.
func (s *served) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cond.Broadcast()
}

// Read returns content, and asks for more.
func (s *served) Read(p []byte) (int, error) {
	s.mu.Lock()
	for len(s.data) == 0 && s.ended == nil && !s.closed {
		s.cond.Wait()
	}
	if s.closed {
		s.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	if len(s.data) == 0 {
		defer s.mu.Unlock()
		return 0, s.ended
	}
	n := copy(p, s.data)
	s.data = append(s.data[:0], s.data[n:]...)
	s.mu.Unlock()
	_ = s.conn.Write(s.ctx, websocket.MessageBinary, strconv.AppendInt([]byte{kindTaken}, int64(n), 10))
	return n, nil
}

// output sends one stream.
type output struct {
	s    *served
	kind byte
}

const maxOutput = 256 << 10 // bytes of a message with output

func (o output) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		piece := p[at:min(len(p), at+maxOutput)]
		if err := o.s.conn.Write(o.s.ctx, websocket.MessageBinary, append([]byte{o.kind}, piece...)); err != nil {
			return at, err
		}
		at += len(piece)
	}
	return len(p), nil
}
