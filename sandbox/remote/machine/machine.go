package machine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"secbox/admission"
	"secbox/sandbox/files"
	"secbox/sandbox/process"
	"secbox/sandbox/remote/wire"
)

// How much is done at once. What is more waits, up to wire.MaxInFlight requests.
const (
	commandsAtOnce  = 32
	readsAtOnce     = 64
	changesAtOnce   = 64
	listsAtOnce     = 4 // a directory may have many names
	transfersAtOnce = 4
)

// How much content is held in memory, in bytes: of files that were read, until core-api has them; of what is to be written or to be a
// command's input, until it is. Each is more than any single message holds.
const (
	memoryForReading = 16 << 20
	memoryForWriting = 16 << 20
	memoryForInput   = 16 << 20
)

// Machine is a runner. It is used once: New, Run.
type Machine struct {
	server  *url.URL
	token   string
	name    string
	version string
	allow   []string
	shell   string
	session string

	log      *slog.Logger
	refusals *refusals

	root  *os.Root
	path  string // of root on this machine
	files *files.Files

	journal   *journal
	keeper    *keeper
	processes *process.Processes
	present   presence
	backoff   func(attempt int) time.Duration
	client    *http.Client // for transfers

	commands, reads, changes, lists, transfers *admission.Gate
	reading, writing, input                    *budget

	requests context.Context // in which requests are carried out: links come and go
	work     sync.WaitGroup
}

// New checks what a runner is to be started with. Errors carry a fault code and say what to do.
func New(cfg Config) (*Machine, error) {
	server, err := cfg.base()
	if err != nil {
		return nil, err
	}
	if err := cfg.token(); err != nil {
		return nil, err
	}
	name, err := cfg.name()
	if err != nil {
		return nil, err
	}
	allow, err := cfg.allow()
	if err != nil {
		return nil, err
	}
	root, path, err := cfg.workspace()
	if err != nil {
		return nil, err
	}
	session := make([]byte, 16)
	_, _ = rand.Read(session) // never fails
	m := &Machine{
		server: server, token: cfg.Token, name: name, version: cfg.Version, allow: allow, shell: process.Shell(), log: cfg.Log, refusals: &refusals{log: cfg.Log},
		session: hex.EncodeToString(session),
		root:    root, path: path, files: files.New(files.Config{Root: root, UID: -1, GID: -1, Windows: cfg.Windows}),
		journal: newJournal(), keeper: &keeper{log: cfg.Log}, processes: process.New(), backoff: cfg.Backoff,
		commands:  admission.New(commandsAtOnce, wire.MaxInFlight),
		reads:     admission.New(readsAtOnce, wire.MaxInFlight),
		changes:   admission.New(changesAtOnce, wire.MaxInFlight),
		lists:     admission.New(listsAtOnce, wire.MaxInFlight),
		transfers: admission.New(transfersAtOnce, wire.MaxInFlight),
		reading:   newBudget(memoryForReading), writing: newBudget(memoryForWriting), input: newBudget(memoryForInput),
	}
	if m.backoff == nil {
		m.backoff = backoff
	}
	m.present.init()
	m.client = transferClient()
	return m, nil
}

// Name is what the user calls this machine.
func (m *Machine) Name() string { return m.name }

// Run serves until ctx ends, which is no error, or until it makes no sense to go on: an error with a fault code. When it returns, no
// command is alive.
func (m *Machine) Run(ctx context.Context) error {
	defer m.root.Close()
	var end context.CancelFunc
	m.requests, end = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		m.journal.stop()
		m.work.Wait()
		_ = m.processes.Close()
		end()
		m.journal.close()
		m.keeper.close()
		m.client.CloseIdleConnections()
	}()
	m.log.Info("starting", "server", address(m.server), "name", m.name, "workspace", m.path, "allowed", granted(m.allow))
	if isHome(m.path) {
		m.log.Warn("the workspace holds your home directory, with all that lies in it: keys and passwords too; a directory of its own is safer", "workspace", m.path)
	}
	if slices.Contains(m.allow, AllowExec) {
		m.log.Warn("commands are allowed: they run as you, and are not confined to the workspace")
	}
	connected := false // ever
	for attempt := 0; ; attempt++ {
		e := m.link(ctx, connected)
		connected = connected || e.welcomed
		switch {
		case ctx.Err() != nil:
			m.log.Info("stopped")
			return nil
		case e.final:
			return e.err
		case e.welcomed: // it works in principle
			attempt = min(attempt, attemptAfterWelcome)
			if e.lasted >= goodLink {
				attempt = 0
			}
		}
		pause := m.backoff(attempt)
		m.log.Warn(e.word(), "why", e.err, "retry_in", pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// How long is waited between attempts to connect.
const (
	firstPause          = 200 * time.Millisecond
	longestPause        = 15 * time.Second
	attemptAfterWelcome = 2
	goodLink            = 10 * time.Second // a link that lasted so long makes the next pause the first one
)

// backoff doubles the pause with every attempt, and takes a random part of it off, so that the runners of a core-api that was restarted
// do not all come at once.
func backoff(attempt int) time.Duration {
	pause := longestPause
	if attempt < 10 {
		pause = min(pause, firstPause<<attempt)
	}
	return pause/2 + mathrand.N(pause/2)
}

// presence tells whoever needs core-api whether there is a link now.
type presence struct {
	mu   sync.Mutex
	up   chan struct{}   // closed while there is one
	link context.Context // of the present one
}

func (p *presence) init() { p.up = make(chan struct{}) }

// begin says that there is a link; ctx ends with it.
func (p *presence) begin(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = ctx
	close(p.up)
}

func (p *presence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = make(chan struct{})
}

// wait waits for a link, and returns the context that ends with it.
func (p *presence) wait(ctx context.Context) (context.Context, error) {
	for {
		p.mu.Lock()
		up, link := p.up, p.link
		p.mu.Unlock()
		select {
		case <-up:
			if link.Err() == nil {
				return link, nil
			}
			// It is just ending: there will be another.
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(firstPause):
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// budget is a bound on bytes in memory. Whoever asks first is served first.
type budget struct {
	mu      sync.Mutex
	free    int64
	all     int64
	waiting []*claim
}

type claim struct {
	bytes int64
	ready chan struct{}
}

func newBudget(bytes int64) *budget { return &budget{free: bytes, all: bytes} }

// try takes bytes if they are free.
func (b *budget) try(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes = min(bytes, b.all)
	if len(b.waiting) > 0 || b.free < bytes {
		return false
	}
	b.free -= bytes
	return true
}

// take waits for bytes. More than there can ever be is all.
func (b *budget) take(ctx context.Context, bytes int64) error {
	if b.try(bytes) {
		return nil
	}
	b.mu.Lock()
	c := &claim{bytes: min(bytes, b.all), ready: make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.serve() // what was given back between the try and now
	b.mu.Unlock()
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.free += c.bytes
	}
	b.serve()
	return context.Cause(ctx)
}

// give gives back what was taken.
func (b *budget) give(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += min(bytes, b.all)
	b.serve()
}

func (b *budget) serve() {
	for len(b.waiting) > 0 && b.waiting[0].bytes <= b.free {
		b.free -= b.waiting[0].bytes
		close(b.waiting[0].ready)
		b.waiting = b.waiting[1:]
	}
}
