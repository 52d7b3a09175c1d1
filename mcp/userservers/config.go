package userservers

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

// AllAgents is the Agent of a server that every agent has.
const AllAgents = "*"

// Server is one MCP server of the settings.
type Server struct {
	Agent   string // an agent's id, or AllAgents
	Name    string // begins the names of its tools
	Command string // a program, looked up in the sandbox's PATH
	Args    []string
	Env     []string // NAME=value
	Tools   []string // the names of the offered tools; nil: all

	StartTimeout time.Duration // until it has listed its tools
	CallTimeout  time.Duration
	Idle         time.Duration // after which its process is ended
}

// Config configures a Manager. All fields are required unless they say otherwise.
type Config struct {
	Servers []Server
	Sandbox sandbox.Streamer // records the commands
	// Bounds returns the policy's ceilings for a command: how long it runs, and how many bytes of
	// standard output it gives back.
	Bounds func() (lifetime time.Duration, output int64)
	// fault.TokenRevoked or fault.Unauthenticated: the processes that it has started end
	Valid   func(ctx context.Context, token string) error
	NewID   func() string // of a command's row
	Version string        // of the program
	Log     *slog.Logger

	Observe func(server, outcome string, took time.Duration) // called after each call; may be nil
	Now     func() time.Time                                 // nil: time.Now
	Sweep   time.Duration                                    // how often idle processes and tokens are looked for; 0: 5 seconds
	MaxUser int                                              // processes of one user; 0: 8
	Max     int                                              // processes; 0: 32. One token may start three quarters of them

	patience time.Duration // 0: defaultPatience
}

// Processes at once. Each is one of the 64 commands that the sandbox none runs, so the servers
// leave half of them to tools; and of the 64 of one user, with some ten threads in a container that
// may have 256.
const (
	defaultMax     = 32
	defaultMaxUser = 8

	defaultSweep = 5 * time.Second

	// defaultPatience is how long a server may take to read a message, and to answer a ping after a
	// call without an answer. By default, the lost link of a user's machine may take as long to
	// return.
	defaultPatience = time.Minute
)

// Bounds of one server.
const (
	maxMessage = 4 << 20 // bytes of one message: an image of 3 MiB
	maxCalls   = 16      // at once; more are fault.SandboxBusy

	listWait    = 3 * time.Second  // a listing of tools waits so long for servers that start
	endWait     = 5 * time.Second  // for its end, after the end of its input
	cancelWait  = 5 * time.Second  // for a server to read a message whose sender has gone
	relistPause = 10 * time.Second // between two listings when the server says that its tools have changed

	firstPause = time.Second // before the third start in a row that fails; the second follows at once
	maxPause   = time.Minute

	forgetAfter = 10 * time.Minute // without use, the list of a server's tools is forgotten
	maxSlots    = 4096             // about servers without a process, what is known of more is forgotten earlier
)

func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(string, string, time.Duration) {}
	}
	c.Sweep = cmp.Or(max(0, c.Sweep), defaultSweep)
	c.patience = cmp.Or(c.patience, defaultPatience)
	c.Max = cmp.Or(max(0, c.Max), defaultMax)
	c.MaxUser = cmp.Or(max(0, c.MaxUser), defaultMaxUser)
}

// of returns the servers of an agent, sorted by name.
func (c *Config) of(agent string) (found []*Server) {
	for i := range c.Servers {
		if one := &c.Servers[i]; one.Agent == agent || one.Agent == AllAgents {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b *Server) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// pause returns how long a server that failed n times in a row is not started again.
func pause(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(firstPause<<min(n-2, 10), maxPause)
}

// failed is the error of a server that did not do its part.
func (d *Server) failed(err error, format string, args ...any) *fault.Error {
	return fault.Wrap(fault.UpstreamFailed, err, "the MCP server "+d.Name+" "+format, args...)
}
