package catalog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/metadata"
	"secbox/sandbox"
)

// Entry is a skill or an agent that a user can use. Its texts are one line of valid UTF-8 without
// control characters.
type Entry struct {
	Kind        Kind
	Name        string // of its directory, or of its file without .md
	Title       string // from its front matter, its first heading, or Name
	Description string
	Role        string // of an agent, from its front matter; may be empty
	Global      bool   // of the service, the same for all users
	Path        string // of the file to read first, or of a skill without one, in the user's sandbox; empty for one that is on this side
	Warning     string // what of its texts cannot be read; see metadata.About
}

// Catalog lists the skills and agents that a user can use.
type Catalog struct {
	Entries []Entry // the service's skills, its agents, the user's skills, the user's agents, each by name
	ReadAt  time.Time
	// Problems say which of the user's own are missing and why, as when the user's machine is away.
	Problems []Problem
}

// Problem is a file or directory of the user that is not listed.
type Problem struct {
	Path   string
	Code   fault.Code
	Reason string
}

// Source is the part of the users' sandboxes that a Store reads.
type Source interface {
	sandbox.Lister
	ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error)
	// Chosen returns where the user's files are: a catalog is not used any more after the user has
	// chosen another machine.
	Chosen(ctx context.Context, userID string) (sandbox.Choice, error)
}

// Config configures a Store.
type Config struct {
	Sandboxes Source
	Global    func() []Entry // returns the service's own at this moment; nil: none
	// Partial reports whether a skill's directory without a SKILL.md may have a part of an
	// installation, which is no skill; nil: it never has.
	Partial func(ctx context.Context, user sandbox.User, name string) (bool, error)
	// Kept returns the skills of a user that are on this side only, as skills are of a user whose
	// sandbox is their own machine. nil: none.
	Kept func(ctx context.Context, user sandbox.User) ([]Entry, error)
	Log  *slog.Logger     // nil: none
	Now  func() time.Time // nil: time.Now

	Fresh time.Duration // how long a catalog is kept; 0: 5 minutes
	Users int           // users whose catalogs are kept; 0: 500
}

// Limits of the user's part of a catalog.
const (
	maxEntries  = 500              // of each kind; later ones are not listed
	maxText     = 128 << 10        // bytes of all entries; later ones are not listed
	maxProblems = 20               // that are reported
	readers     = 8                // files that are read at once
	readTime    = 20 * time.Second // for the whole
	retryAfter  = 5 * time.Second  // for which an incomplete catalog is kept
)

// Catalogs that are read at once: each holds handles, or waits for a machine. Further ones wait in
// order of arrival.
const (
	atOnce         = 64
	queued         = 256
	atOncePerToken = 48
	queuedPerToken = 192
)

// Store has the catalogs of users. It is safe for concurrent use.
type Store struct {
	cfg   Config
	reads *admission.Gate

	mu      sync.Mutex
	catalog map[sandbox.User]*slot
}

// slot is the catalog of a user, or the reading of it.
type slot struct {
	where  sandbox.Choice
	done   chan struct{} // closed when catalog is set
	result *Catalog
	used   time.Time
	failed bool // a part could not be read: it is fresh for retryAfter only
}

// New returns a Store.
func New(cfg Config) *Store {
	if cfg.Global == nil {
		cfg.Global = func() []Entry { return nil }
	}
	if cfg.Partial == nil {
		cfg.Partial = func(context.Context, sandbox.User, string) (bool, error) { return false, nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Fresh <= 0 {
		cfg.Fresh = 5 * time.Minute
	}
	if cfg.Users <= 0 {
		cfg.Users = 500
	}
	return &Store{
		cfg: cfg, reads: admission.NewShared(atOnce, queued, admission.Share{AtOnce: atOncePerToken, Queue: queuedPerToken}),
		catalog: map[sandbox.User]*slot{},
	}
}

// Of returns the catalog of a user. It reads the user's own skills and agents if the kept catalog
// is too old, once for all callers that wait for it. When they cannot be read, it returns the
// service's alone, and Problems says why. The error is the error of ctx, fault.DatabaseUnavailable,
// or fault.SandboxBusy when too many catalogs are being read. The caller must not change the
// Catalog.
func (s *Store) Of(ctx context.Context, user sandbox.User) (*Catalog, error) {
	where, err := s.cfg.Sandboxes.Chosen(ctx, user.ID)
	if err != nil {
		return nil, err
	}
	user = sandbox.User{AgentID: user.AgentID, ID: user.ID}
	s.mu.Lock()
	one := s.known(user, where)
	s.mu.Unlock()
	if one == nil {
		if one, err = s.begin(ctx, user, where); err != nil {
			return nil, err
		}
	}
	select {
	case <-one.done:
		return s.withGlobal(one.result), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// known returns the catalog of a user, or the reading of it; nil: it must be read. The caller holds
// mu.
func (s *Store) known(user sandbox.User, where sandbox.Choice) *slot {
	now := s.cfg.Now()
	one := s.catalog[user]
	if one == nil || one.where != where || !one.usable(now, s.cfg.Fresh) {
		return nil
	}
	one.used = now
	return one
}

// begin begins to read a catalog when it is this caller's turn, unless another caller was faster.
// It is read for all who wait, even if this caller gives up.
func (s *Store) begin(ctx context.Context, user sandbox.User, where sandbox.Choice) (*slot, error) {
	turn, overShare := s.reads.EnterAs(sandbox.RequestOf(ctx).RequestedBy)
	if turn == nil {
		e := fault.New(fault.SandboxBusy, "server limit reached: too many catalogs are being read; try again later")
		if overShare {
			e = fault.New(fault.SandboxBusy, "token limit reached: too many catalogs are being read for this token; try again later")
		}
		e.RetryAfter = retryAfter
		return nil, e
	}
	if err := turn.Wait(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.known(user, where); one != nil {
		turn.Leave()
		return one, nil
	}
	one := &slot{where: where, done: make(chan struct{}), used: s.cfg.Now()}
	s.catalog[user] = one
	s.makeRoom()
	go func() {
		defer turn.Leave()
		s.read(context.WithoutCancel(ctx), user, one)
	}()
	return one, nil
}

// usable reports whether a catalog is being read, or is fresh.
func (o *slot) usable(now time.Time, fresh time.Duration) bool {
	select {
	case <-o.done:
		if o.failed {
			fresh = retryAfter
		}
		return now.Sub(o.result.ReadAt) < fresh
	default:
		return true
	}
}

// makeRoom forgets the catalog that was not used for the longest time, if there are too many.
// Callers that wait for it get it.
func (s *Store) makeRoom() {
	for len(s.catalog) > s.cfg.Users {
		var oldest sandbox.User
		for user, one := range s.catalog {
			if was := s.catalog[oldest]; was == nil || one.used.Before(was.used) {
				oldest = user
			}
		}
		delete(s.catalog, oldest)
	}
}

// InvalidateCache makes the next call of Of read a user's skills and agents again. A user without
// an AgentID stands for all agents, and the zero User for all users.
func (s *Store) InvalidateCache(user sandbox.User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.catalog {
		if user.ID == "" || user.Holds(one) {
			delete(s.catalog, one)
		}
	}
}

// withGlobal returns the catalog of a user with the service's own. Of two entries with one name,
// the service's counts.
func (s *Store) withGlobal(own *Catalog) *Catalog {
	all := &Catalog{ReadAt: own.ReadAt, Problems: slices.Clone(own.Problems)}
	type key struct {
		kind Kind
		name string
	}
	taken := map[key]bool{}
	for _, e := range s.cfg.Global() {
		e.Global = true
		taken[key{e.Kind, e.Name}] = true
		all.Entries = append(all.Entries, e)
	}
	for _, e := range own.Entries {
		if !taken[key{e.Kind, e.Name}] {
			all.Entries = append(all.Entries, e)
		} else if len(all.Problems) < maxProblems {
			all.Problems = append(all.Problems, Problem{
				Path: e.Path, Code: fault.SkillConflict,
				Reason: "the service has a " + string(e.Kind) + " of this name, which is used instead; rename this one",
			})
		}
	}
	return all
}

// read reads the user's own skills and agents.
func (s *Store) read(ctx context.Context, user sandbox.User, one *slot) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	r := &reading{s: s.cfg.Sandboxes, partial: s.cfg.Partial, user: user, found: &Catalog{ReadAt: s.cfg.Now()}, global: map[string]bool{}}
	for _, e := range s.cfg.Global() {
		if e.Kind == Skill {
			r.global[e.Name] = true
		}
	}
	for _, kind := range Kinds {
		r.list(ctx, kind)
		if kind == Skill && s.cfg.Kept != nil && sandbox.TraitsOf(one.where.Backend).UserMachine {
			r.kept(ctx, s.cfg.Kept)
		}
	}
	if r.failed {
		s.cfg.Log.WarnContext(ctx, "a user's skills and agents cannot be read", "user", user.ID, "agent", user.AgentID, "error",
			r.found.Problems[0].Reason)
	}
	one.result, one.failed = r.found, r.failed
	close(one.done)
}

// reading is one reading of a user's skills and agents.
type reading struct {
	s       Source
	partial func(ctx context.Context, user sandbox.User, name string) (bool, error)
	user    sandbox.User
	global  map[string]bool // names of the service's skills

	mu     sync.Mutex
	found  *Catalog
	failed bool
	text   int // bytes of the entries
}

// list adds the entries of one kind.
func (r *reading) list(ctx context.Context, kind Kind) {
	dir := path.Dir(kind.Path("-"))
	names, err := r.s.ReadDir(ctx, dir, r.user)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.failed = true
		r.problem(dir, err)
		return
	}
	var found []string
	isDir := map[string]bool{}
	for _, e := range names {
		name, isAgent := strings.CutSuffix(e.Name, AgentExt)
		if isAgent = isAgent && name != ""; isAgent != (kind == Agent) || !e.IsDir && kind == Skill && e.Mode&fs.ModeSymlink == 0 ||
			strings.HasPrefix(name, ".") {
			continue
		}
		// the place of a service's skill beside the user's, which leads out
		if r.global[name] && kind == Skill && e.Mode&fs.ModeSymlink != 0 {
			continue
		}
		if len(found) == maxEntries {
			r.problem(dir, fault.New(fault.TreeTooLarge, "only the first %d are listed: remove some", maxEntries))
			break
		}
		found = append(found, name)
		isDir[name] = e.IsDir
	}
	entries := make([]*Entry, len(found))
	var all sync.WaitGroup
	permits := make(chan struct{}, readers)
	for i, name := range found {
		permits <- struct{}{}
		all.Go(func() {
			defer func() { <-permits }()
			entries[i] = r.entry(ctx, kind, name, isDir[name])
		})
	}
	all.Wait()
	for _, e := range entries {
		if e == nil {
			continue
		}
		if r.text += len(e.Name) + len(e.Title) + len(e.Description) + len(e.Role) + len(e.Path) + len(e.Warning); r.text > maxText {
			r.problem(e.Path, fault.New(fault.TreeTooLarge,
				"is not listed, as well as all after it: names and descriptions have more than %d bytes", maxText))
			return
		}
		r.found.Entries = append(r.found.Entries, *e)
	}
}

// kept adds the user's skills that are on this side, unless the user's machine has one of the same
// name.
func (r *reading) kept(ctx context.Context, of func(context.Context, sandbox.User) ([]Entry, error)) {
	all, err := of(ctx, r.user)
	if err != nil {
		r.failed = true
		r.problem(SkillsDir, err)
		return
	}
	for _, e := range all {
		if slices.ContainsFunc(r.found.Entries, func(own Entry) bool { return own.Kind == e.Kind && own.Name == e.Name }) {
			continue
		}
		if r.text += len(e.Name) + len(e.Title) + len(e.Description); r.text > maxText {
			return
		}
		r.found.Entries = append(r.found.Entries, e)
	}
}

// entry reads the file that describes a skill or an agent. A skill's directory without one has its
// own name and no description; nil for a link or an agent without.
func (r *reading) entry(ctx context.Context, kind Kind, name string, isDir bool) *Entry {
	file := kind.File(name)
	if why := NameFault(name); why != "" {
		r.problem(file, fault.New(fault.InvalidRequest, "its name %s", why))
		return nil
	}
	dir, short := path.Split(file)
	files, label := []string{short}, "agents/"
	if kind == Skill {
		files, label = metadata.Files[:], ""
	}
	e := &Entry{Kind: kind, Name: name}
	for _, short := range files {
		e.Path = dir + short
		content, err := Read(ctx, r.s, e.Path, r.user, metadata.MaxFileBytes)
		if errors.Is(err, fs.ErrNotExist) {
			if short == SkillFile && !r.isWhole(ctx, name) {
				return nil
			}
			continue
		}
		if err != nil && !errors.Is(err, sandbox.ErrFull) {
			r.problem(e.Path, err)
			return nil
		}
		e.say(metadata.DescribeFile(content, label+short, name))
		return e
	}
	if kind == Agent || !isDir {
		return nil
	}
	e.Path = path.Clean(dir)
	e.say(metadata.DescribeFile(nil, SkillFile, name))
	return e
}

// isWhole reports whether a skill's directory without a SKILL.md is no part of an installation, or
// else adds the problem.
func (r *reading) isWhole(ctx context.Context, name string) bool {
	partial, err := r.partial(ctx, r.user, name)
	if partial {
		err = fault.New(fault.SkillConflict, "has no SKILL.md, because it is being installed, or its installation failed: install it "+
			"again, or remove the directory")
	}
	if err != nil {
		r.problem(Skill.Path(name), err)
	}
	return err == nil
}

func (e *Entry) say(about metadata.About) {
	e.Title, e.Description, e.Warning = about.Name, about.Description, about.Warning
	if e.Kind == Agent {
		e.Role = about.Role
	}
}

// Read returns at most limit bytes of a file of a sandbox. For a longer one it returns them with
// sandbox.ErrFull.
func Read(ctx context.Context, s interface {
	ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error)
}, file string, user sandbox.User, limit int64,
) ([]byte, error) {
	var content bytes.Buffer
	w := &sandbox.BoundedWriter{W: &content, Left: limit}
	_, err := s.ReadFileTo(ctx, file, w, user)
	if w.Full {
		err = sandbox.ErrFull
	}
	return content.Bytes(), err
}

// problem adds a problem, unless there are many.
func (r *reading) problem(at string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found.Problems) == maxProblems {
		return
	}
	p := Problem{Path: at, Code: fault.PathRefused}
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		p.Code, p.Reason = known.Code, known.Message
	case errors.Is(err, fs.ErrPermission):
		p.Reason = "leads out of the workspace, or permission is denied"
	case errors.Is(err, fs.ErrInvalid):
		p.Reason = "is no regular file"
	case errors.Is(err, context.DeadlineExceeded):
		p.Code, p.Reason = fault.SandboxBusy, "could not be read in time; try again"
	default:
		p.Code, p.Reason = fault.Internal, "cannot be read; the server's log has the reason"
	}
	r.found.Problems = append(r.found.Problems, p)
}
