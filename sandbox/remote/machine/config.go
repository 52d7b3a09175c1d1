package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// What Config.Allow may grant.
const (
	AllowExec  = wire.AllowExec
	AllowWrite = wire.AllowWrite
)

// Config is what a runner is started with.
type Config struct {
	Server    string   // address of core-api, beginning with ws, wss, http or https
	Token     string   // of the role runner
	Workspace string   // the directory that is served as sandbox.Root
	Name      string   // under which the user knows this machine; empty: made of the host's name
	Allow     []string // AllowExec, AllowWrite; reading is always granted
	Version   string   // of the program
	Insecure  bool     // the token may go over plain http to another machine
	Windows   bool     // refuse names that Windows understands as something else; on Windows it is always so
	Log       *slog.Logger

	// Backoff is how long is waited after an attempt to connect, or to transfer, that failed; attempt counts from 0 since the last good one.
	// nil: from 200 ms on it doubles up to 15 s, and a random part is taken off.
	Backoff func(attempt int) time.Duration
}

// exampleServer is how an address looks.
const exampleServer = "wss://core-api.example.com"

// base is the address of core-api with http or https, without a slash at its end.
func (c Config) base() (*url.URL, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Hostname() == "" {
		return nil, fault.New(fault.InvalidRequest, "--server %q is no address; give one like %s", c.Server, exampleServer)
	}
	switch u.Scheme {
	case "ws", "http":
		u.Scheme = "http"
	case "wss", "https":
		u.Scheme = "https"
	default:
		return nil, fault.New(fault.InvalidRequest, "--server %q must begin with wss://, ws://, https:// or http://, like %s", c.Server, exampleServer)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.New(fault.InvalidRequest, "--server takes an address without user, query or fragment, like %s", exampleServer)
	}
	if u.Scheme == "http" && !c.Insecure && !isLoopback(u.Hostname()) {
		return nil, fault.New(fault.Forbidden, "the token would go to %s in plain text, where others can read it; use wss://, or say --insecure if the way there is safe", u.Host)
	}
	// Somebody who gives the whole address of the link means the same.
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), wire.LinkPath), "/")
	return u, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// address is a server as a person knows it.
func address(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port(u)) + u.Path
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// workspace opens the directory that is served.
func (c Config) workspace() (*os.Root, string, error) {
	if c.Workspace == "" {
		return nil, "", fault.New(fault.InvalidRequest, "say with --workspace which directory is to be served")
	}
	path, err := filepath.Abs(c.Workspace)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fault.New(fault.InvalidRequest, "the workspace %s does not exist; make it first: mkdir -p %q", c.Workspace, c.Workspace)
	}
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "the workspace %s cannot be opened: %s", c.Workspace, reason(err))
	}
	if path == filepath.VolumeName(path)+string(filepath.Separator) {
		return nil, "", fault.New(fault.InvalidRequest, "the workspace must not be %s: that is all of this machine; make a directory for it", path)
	}
	if fi, err := os.Stat(path); err == nil && !fi.IsDir() {
		return nil, "", fault.New(fault.InvalidRequest, "the workspace %s is no directory", c.Workspace)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "the workspace %s cannot be opened: %s", c.Workspace, reason(err))
	}
	return root, path, nil
}

// reason is what the system says, without the path, which stands beside it.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

// isHome reports whether a directory holds the user's home, or is it.
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

// name is what the user calls this machine.
func (c Config) name() (string, error) {
	if c.Name != "" {
		if !wire.ValidName(c.Name) {
			return "", fault.New(fault.InvalidRequest,
				"--name %.80q is none: it has 1 to %d letters, digits, dots, underscores and dashes, a letter or digit first", c.Name, wire.MaxName)
		}
		return c.Name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, err, "this machine does not know its name (%s); give one with --name", err)
	}
	return NameOf(host), nil
}

// NameOf makes a runner's name of a host's.
func NameOf(host string) string {
	host, _, _ = strings.Cut(host, ".")
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && wire.ValidID(string(r)) {
			return r
		}
		return '-'
	}, host)
	name = strings.Trim(name, "-_")
	if len(name) > wire.MaxName {
		name = strings.TrimRight(name[:wire.MaxName], "-_")
	}
	if !wire.ValidName(name) {
		return "machine"
	}
	return name
}

// allow checks what is granted and puts it into order.
func (c Config) allow() ([]string, error) {
	var allow []string
	for _, a := range c.Allow {
		switch a {
		case AllowExec, AllowWrite:
			allow = append(allow, a)
		default:
			return nil, fault.New(fault.InvalidRequest, "--allow %.80q grants nothing; it takes %s, %s, or both with a comma between", a, AllowExec, AllowWrite)
		}
	}
	slices.Sort(allow)
	return slices.Compact(allow), nil
}

func (c Config) token() error {
	if c.Token == "" {
		return fault.New(fault.Unauthenticated, "there is no token; core-api makes one with: core-api token create --role runner --user NAME")
	}
	for _, b := range []byte(c.Token) {
		if b <= ' ' || b > '~' {
			return fault.New(fault.InvalidRequest, "the token is none: a token is one word of printable ASCII")
		}
	}
	return nil
}

// granted says in words what is allowed.
func granted(allow []string) string {
	if len(allow) == 0 {
		return "reading files; nothing else (see --allow)"
	}
	words := []string{"reading files"}
	if slices.Contains(allow, AllowWrite) {
		words = append(words, "changing files")
	}
	if slices.Contains(allow, AllowExec) {
		words = append(words, "running commands as this user")
	}
	return fmt.Sprint(strings.Join(words, ", "))
}
