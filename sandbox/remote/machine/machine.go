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

	"golang.org/x/sync/semaphore"

	"secbox/internal/admission"
	"secbox/sandbox/files"
	"secbox/sandbox/process"
	"secbox/sandbox/remote/wire"
)

// How many requests run at once. The others wait, up to wire.MaxInFlight.
const (
	commandsAtOnce  = 32
	readsAtOnce     = 64
	changesAtOnce   = 64
	listsAtOnce     = 4 // a directory may have many names
	transfersAtOnce = 4
)

// Bounds of the content in memory, in bytes: of files that were read, until core-api has them; of
// content to write, until it is written; of commands' input, until the command ends. Each is larger
// than any single message.
const (
	memoryForReading = 16 << 20
	memoryForWriting = 16 << 20
	memoryForInput   = 16 << 20
)

// Machine is a runner. Call New, then Run once.
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
	outputs   *outputStore
	processes *process.Processes
	status    linkStatus
	backoff   func(attempt int) time.Duration
	client    *http.Client // for transfers

	commands, reads, changes, lists, transfers *admission.Gate
	reading, writing, input                    *semaphore.Weighted

	requests context.Context // the parent of requests' contexts: they outlive links
	work     sync.WaitGroup
}

// New checks the configuration. Errors carry a fault code and a remedy.
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
		server: server, token: cfg.Token, name: name, version: cfg.Version, allow: allow, shell: process.Shell(), log: cfg.Log,
		refusals: &refusals{log: cfg.Log},
		session:  hex.EncodeToString(session),
		root:     root, path: path, files: files.New(files.Config{Root: root, UID: -1, GID: -1, Windows: cfg.Windows}),
		journal: newJournal(), outputs: &outputStore{log: cfg.Log}, processes: process.New(), backoff: cfg.Backoff,
		commands:  admission.New(commandsAtOnce, wire.MaxInFlight),
		reads:     admission.New(readsAtOnce, wire.MaxInFlight),
		changes:   admission.New(changesAtOnce, wire.MaxInFlight),
		lists:     admission.New(listsAtOnce, wire.MaxInFlight),
		transfers: admission.New(transfersAtOnce, wire.MaxInFlight),
		reading:   semaphore.NewWeighted(memoryForReading), writing: semaphore.NewWeighted(memoryForWriting),
		input: semaphore.NewWeighted(memoryForInput),
	}
	if m.backoff == nil {
		m.backoff = backoff
	}
	m.status.init()
	m.client = transferClient()
	return m, nil
}

// Run serves until ctx ends, which is not an error, or until it cannot go on: an error with a fault
// code. When it returns, no command is alive.
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
		m.outputs.close()
		m.client.CloseIdleConnections()
	}()
	m.log.Info("starting", "server", m.server, "name", m.name, "workspace", m.path, "allowed", describeAllowed(m.allow))
	if isHome(m.path) {
		m.log.Warn("the workspace contains your home directory, with its keys and passwords; use a separate directory", "workspace", m.path)
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
		case e.welcomed: // the server works
			attempt = min(attempt, attemptAfterWelcome)
			if e.lasted >= goodLink {
				attempt = 0
			}
		}
		pause := m.backoff(attempt)
		m.log.Warn(e.summary(), "why", e.err, "retry_in", pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Pauses between attempts to connect.
const (
	firstPause          = 200 * time.Millisecond
	longestPause        = 15 * time.Second
	attemptAfterWelcome = 2
	goodLink            = 10 * time.Second // a link that lasted this long resets the pause
)

// backoff doubles the pause with every attempt, and subtracts a random part, so that the runners of
// a restarted core-api do not all come at once.
func backoff(attempt int) time.Duration {
	pause := longestPause
	if attempt < 10 {
		pause = min(pause, firstPause<<attempt)
	}
	return pause/2 + mathrand.N(pause/2)
}

// linkStatus tells transfers whether there is a link.
type linkStatus struct {
	mu   sync.Mutex
	up   chan struct{}   // closed while there is one
	link context.Context // of the present link
}

func (p *linkStatus) init() { p.up = make(chan struct{}) }

// begin records a link; ctx ends with it.
func (p *linkStatus) begin(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = ctx
	close(p.up)
}

func (p *linkStatus) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = make(chan struct{})
}

// wait waits for a link, and returns the context that ends with it.
func (p *linkStatus) wait(ctx context.Context) (context.Context, error) {
	for {
		p.mu.Lock()
		up, link := p.up, p.link
		p.mu.Unlock()
		select {
		case <-up:
			if link.Err() == nil {
				return link, nil
			}
			// The link is just ending: wait for the next.
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
