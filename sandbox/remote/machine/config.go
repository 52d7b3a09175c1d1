package machine

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// The values of Config.Allow.
const (
	AllowExec  = wire.AllowExec
	AllowWrite = wire.AllowWrite
)

// Config configures a Machine.
type Config struct {
	Server    string   // address of core-api, beginning with ws, wss, http or https
	Token     string   // with the role runner
	Workspace string   // the directory to serve as sandbox.Root
	Name      string   // the user's name for this machine; empty: made from the host's name
	Allow     []string // AllowExec, AllowWrite; reading and searching are always granted
	Version   string   // of the program
	Insecure  bool     // allows to send the token over plain http to another machine
	Windows   bool     // refuse names that are special on Windows; always set there
	Log       *slog.Logger

	// Backoff returns how long to wait after a failed attempt to connect or to transfer; attempt
	// counts from 0 since the last success. nil: 200 ms, doubled each time up to 15 s, minus a
	// random part.
	Backoff func(attempt int) time.Duration
}

const exampleServer = "wss://core-api.example.com"

// base returns the address of core-api with http or https, without a trailing slash.
func (c Config) base() (*url.URL, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Hostname() == "" {
		return nil, fault.New(fault.InvalidRequest, "--server %q is not an address; use one like %s", c.Server, exampleServer)
	}
	switch u.Scheme {
	case "ws", "http":
		u.Scheme = "http"
	case "wss", "https":
		u.Scheme = "https"
	default:
		return nil, fault.New(fault.InvalidRequest, "--server %q must begin with wss://, ws://, https:// or http://, like %s", c.Server,
			exampleServer)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.New(fault.InvalidRequest, "--server takes an address without user, query or fragment, like %s", exampleServer)
	}
	if u.Scheme == "http" && !c.Insecure && !IsLoopback(u.Hostname()) {
		return nil,
			fault.New(fault.InvalidRequest, "the token would go to %s in plain text, where others can read it; use wss://, or --insecure "+
				"if the network is safe", u.Host)
	}
	// Users may give the address of the link itself.
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), wire.LinkPath), "/")
	return u, nil
}

// IsLoopback reports whether a host is this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// workspace opens the directory to serve.
func (c Config) workspace() (*os.Root, string, error) {
	if c.Workspace == "" {
		return nil, "", fault.New(fault.InvalidRequest, "name the directory to serve with --workspace")
	}
	path, err := filepath.Abs(c.Workspace)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fault.New(fault.InvalidRequest, "the workspace %s does not exist; make it first: mkdir -p %q", c.Workspace,
			c.Workspace)
	}
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "cannot open the workspace %s: %s", c.Workspace, reason(err))
	}
	if path == filepath.VolumeName(path)+string(filepath.Separator) {
		return nil, "", fault.New(fault.InvalidRequest, "the workspace must not be %s, which is the whole machine; make a directory for it",
			path)
	}
	if fi, err := os.Stat(path); err == nil && !fi.IsDir() {
		return nil, "", fault.New(fault.InvalidRequest, "the workspace %s is not a directory", c.Workspace)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "cannot open the workspace %s: %s", c.Workspace, reason(err))
	}
	return root, path, nil
}

// reason returns the system's error without the path, which the message has already.
func reason(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}

// isHome reports whether a directory is the user's home or contains it.
func isHome(path string) bool {
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return false
	}
	below, err := filepath.Rel(path, home)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
}

// name returns the runner's name.
func (c Config) name() (string, error) {
	if c.Name != "" {
		if !sandbox.ValidRunnerName(c.Name) {
			return "", fault.New(fault.InvalidRequest,
				"--name %.80q is invalid: use 1 to %d letters, digits, dots, underscores and dashes, a letter or digit first", c.Name,
				sandbox.MaxRunnerName)
		}
		return c.Name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, err, "this machine has no host name (%s); set --name", err)
	}
	return NameOf(host), nil
}

// NameOf makes a runner's name from a host's.
func NameOf(host string) string {
	host, _, _ = strings.Cut(host, ".")
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && wire.ValidID(string(r)) {
			return r
		}
		return '-'
	}, host)
	name = strings.Trim(name, "-_")
	if len(name) > sandbox.MaxRunnerName {
		name = strings.TrimRight(name[:sandbox.MaxRunnerName], "-_")
	}
	if !sandbox.ValidRunnerName(name) {
		return "machine"
	}
	return name
}

// allow checks Allow and sorts it.
func (c Config) allow() ([]string, error) {
	var allow []string
	for _, a := range c.Allow {
		switch a {
		case AllowExec, AllowWrite:
			allow = append(allow, a)
		default:
			return nil, fault.New(fault.InvalidRequest, "--allow %.80q is unknown; use %s, %s, or both separated by a comma", a, AllowExec,
				AllowWrite)
		}
	}
	slices.Sort(allow)
	return slices.Compact(allow), nil
}

func (c Config) token() error {
	if c.Token == "" {
		return fault.New(fault.Unauthenticated, "no token; core-api makes one with: core-api token create --role runner --user NAME")
	}
	if !ValidToken(c.Token) {
		return fault.New(fault.InvalidRequest, "the token is invalid: a token is one word of printable ASCII")
	}
	return nil
}

// ValidToken reports whether s can be a token of core-api: printable ASCII without spaces.
func ValidToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// describeAllowed lists the allowed operations in words.
func describeAllowed(allow []string) string {
	if len(allow) == 0 {
		return "reading and searching files; nothing else (see --allow)"
	}
	words := []string{"reading and searching files"}
	if slices.Contains(allow, AllowWrite) {
		words = append(words, "changing files")
	}
	if slices.Contains(allow, AllowExec) {
		words = append(words, "running commands as this user")
	}
	return strings.Join(words, ", ")
}
