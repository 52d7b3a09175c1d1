package tools

import (
	"path"
	"slices"
	"strings"
	"sync"

	"secbox/mcp/feishu"
	"secbox/mcp/offload"
	"secbox/sandbox"
)

// maxFilesRead is how many files a session remembers as read. The oldest are forgotten, and must be
// read again before they are overwritten.
const maxFilesRead = 1000

// Session is the work of one agent for one user: where it is, and which files it has read. Safe for
// concurrent use.
type Session struct {
	sandbox sandbox.Backend
	user    sandbox.User
	skills  Skills
	kept    *offload.Session // nil: long results are not kept
	feishu  *feishu.Client   // nil: off

	packages Packages // nil: none
	registry Registry // nil: none
	catalog  Catalog

	mu    sync.Mutex
	dir   string
	read  map[string]string // SHA-256, in hexadecimal, of the files' content as the agent has seen or written it last; by path
	order []string          // the keys of read, oldest first
}

// NewSession begins a session in sandbox.Root. skills are the installation's skills; nil: none.
func NewSession(s sandbox.Backend, user sandbox.User, skills Skills) *Session {
	return &Session{sandbox: s, user: user, skills: skills, dir: sandbox.Root, read: map[string]string{}}
}

// WithResults has a new session keep results that are too long for a model, and returns it. The
// caller must call Close.
func (s *Session) WithResults(kept *offload.Session) *Session {
	s.kept = kept
	return s
}

// WithPackages has a new session read the user's skills that only core-api has, and returns it.
func (s *Session) WithPackages(p Packages) *Session {
	s.packages = p
	return s
}

// WithFeishu lets a new session use Feishu, and returns it. nil: it may not.
func (s *Session) WithFeishu(client *feishu.Client) *Session {
	s.feishu = client
	return s
}

// Tools returns the tools that the session offers, in the order in which they are listed.
func (s *Session) Tools() []*Tool {
	offered := slices.Clone(All)
	if s.kept != nil {
		offered = append(offered, keptTools...)
	}
	if s.feishu != nil {
		offered = append(offered, feishuTools...)
	}
	return offered
}

// Close removes the results that were kept. Calls in progress keep no more. Safe to call twice.
func (s *Session) Close() {
	if s.kept != nil {
		s.kept.Close()
	}
}

// Dir returns the current directory.
func (s *Session) Dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

func (s *Session) setDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir = dir
}

// resolve returns the absolute path of a name, which is relative to the current directory if it is
// not absolute. An absolute one stays as it is: the sandbox checks it. Empty is the current
// directory.
func (s *Session) resolve(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return path.Join(s.Dir(), name)
}

// short returns a path as the agent would write it: relative if it is below the current directory.
func (s *Session) short(full string) string {
	if below, ok := strings.CutPrefix(full, s.Dir()+"/"); ok {
		return below
	}
	return full
}

// sawFile remembers the digest of a file's content.
func (s *Session) sawFile(full, digest string) {
	full = path.Clean(full)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.read[full]; !ok {
		if len(s.order) == maxFilesRead {
			delete(s.read, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, full)
	}
	s.read[full] = digest
}

// seenFile returns the digest that sawFile was told; empty: none.
func (s *Session) seenFile(full string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read[path.Clean(full)]
}

// seenFiles returns all files that sawFile was told of and has not forgotten, the latest first.
func (s *Session) seenFiles() []offload.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]offload.File, 0, len(s.order))
	for _, full := range slices.Backward(s.order) {
		all = append(all, offload.File{Path: full, SHA256: s.read[full]})
	}
	return all
}
