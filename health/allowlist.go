package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/network"
	"secbox/policy"
)

// The hosts of the probe of net.mode allowlist. Their names exist in the probe only.
const (
	allowedTarget = "allowed.invalid:7"
	insideTarget  = "inside.invalid:80" // allowed by name, and with the address of a metadata service
	echoed        = "hello"
)

// deniedTargets are what the probe asks for in vain.
var deniedTargets = []string{
	"denied.invalid:7", "allowed.invalid:8", insideTarget, "169.254.169.254:80", "127.0.0.1:7", "[::1]:7", "0x7f.1:7", "1.1.1.1:443",
	"[2606:4700:4700::1111]:443",
}

func allowlist() experiment {
	e := python("allowlist", append([]string{allowedTarget}, deniedTargets...)...)
	e.network = true
	e.checks = []check{{
		name:     "allowlist",
		expected: "with net.mode allowlist, the allowed host is reached and no other one: neither by name, port, address nor past the proxy",
		remedy:   "rebuild the image with `make images`: its sandbox-init may be too old; if that does not help, leave sandbox.policy.net.allow empty",
		judge: reading(func(_ outcome, facts struct {
			Proxy       bool
			Asked       map[string]string
			Lookup, Raw string
		},
		) (string, bool) {
			switch {
			case !facts.Proxy:
				return "the job has no proxy", false
			case facts.Asked[allowedTarget] != echoed:
				return "the allowed host was not reached: " + plain(facts.Asked[allowedTarget]), false
			case facts.Lookup == "" || facts.Raw == "":
				return incomplete, false
			case facts.Lookup != "refused":
				return "a name server answered", false
			case facts.Raw == "done":
				return "a raw socket could be opened", false
			}
			for _, t := range deniedTargets {
				if got := facts.Asked[t]; got != "403" && got != "400" {
					return fmt.Sprintf("%s was not refused: %s", t, plain(got)), false
				}
			}
			return fmt.Sprintf("the allowed host answered, %d others were refused", len(deniedTargets)), true
		}),
	}}
	return e
}

// withNetwork gives a job a way out to an echo, for the probe. The caller calls end after the job.
func withNetwork(job *engine.Job) (end func(), err error) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, len(echoed))
			if n, err := conn.Read(buf); err == nil {
				_, _ = conn.Write(buf[:n])
			}
			_ = conn.Close()
		}
	}()
	limits := policy.Defaults().NetLimits
	public := netip.MustParseAddr("192.0.2.1") // for documentation; the echo is dialed in its place
	way := network.New(network.Config{
		Store: forgotten{}, Private: []netip.Prefix{netip.PrefixFrom(public, 32)},
		Connections: int(limits.NetConnections), PerToken: int(limits.NetConnections), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			switch name {
			case "allowed.invalid":
				return []netip.Addr{public}, nil
			case "inside.invalid":
				return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
			}
			return nil, errors.New("no such name")
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", echo.Addr().String())
		},
	}).Open(network.Exec{ID: "doctor", Allow: slices.Clone([]string{allowedTarget, insideTarget}), Limits: limits})
	job.OnConnection = way.Serve
	return func() {
		way.Close()
		_ = echo.Close()
	}, nil
}

// forgotten keeps no connections.
type forgotten struct{}

func (forgotten) SaveConnections(context.Context, []audit.Connection) error { return nil }

func (forgotten) Connections(context.Context, string, int64, int) ([]audit.Connection, error) {
	return nil, nil
}
