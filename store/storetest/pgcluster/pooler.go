//go:build unix

package pgcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Pooler is a PgBouncer in front of a cluster's server.
type Pooler struct {
	dir string // its socket, settings and log
	end func() error
}

// poolerSettings let the next transaction of a client run in another session whenever one is free,
// so that tests notice state that belongs to a session. Idle sessions end soon, since each database
// has its own. The verbs are the server's sockets, the pooler's folder (twice) and the mode.
const poolerSettings = `[databases]
* = host=%s port=5432
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = %s
auth_type = scram-sha-256
auth_file = %s/users
pool_mode = %s
server_round_robin = 1
server_idle_timeout = 5
max_client_conn = 1000
`

// poolerSupervisor runs the pooler $0 with the settings $1 and the log $2 while its standard input
// is open.
const poolerSupervisor = `
trap '' INT TERM HUP
"$0" "$1" >>"$2" 2>&1 </dev/null &
read -r word
kill -TERM $! 2>/dev/null
wait $!
`

// Pooler starts a PgBouncer in front of the server. mode is its pool_mode: session, transaction or
// statement. It runs until Stop or the end of this process.
func (c *Cluster) Pooler(mode string) (*Pooler, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, errors.New("pgbouncer is not installed; run `make setup`, or: apt-get install pgbouncer")
		}
	}
	dir, err := os.MkdirTemp(c.dir, "pooler-")
	if err != nil {
		return nil, err
	}
	users, ini := filepath.Join(dir, "users"), filepath.Join(dir, "ini")
	err = errors.Join(
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", superuser, c.password), 0o600),
		os.WriteFile(ini, fmt.Appendf(nil, poolerSettings, c.socketDir(), dir, dir, mode), 0o600),
	)
	if c.as != nil {
		for _, path := range []string{dir, users, ini} {
			err = errors.Join(err, os.Chown(path, int(c.as.Uid), int(c.as.Gid)))
		}
	}
	if err != nil {
		return nil, err
	}
	cmd := c.command("sh")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", poolerSupervisor, path, ini, filepath.Join(dir, "log")}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C is for our process, with which the pooler ends
	lease, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Pooler{dir, func() error {
		lease.Close()
		return cmd.Wait()
	}}
	if err := p.answers(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, errors.Join(fmt.Errorf("pgbouncer does not answer: %w\n%s", err, log), p.Stop())
	}
	return p, nil
}

// answers waits until the pooler listens.
func (p *Pooler) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, ".s.PGSQL.5432"))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-poll.C:
		}
	}
}

// Through returns the URL of a cluster's database with the pooler in place of the server.
func (p *Pooler) Through(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set("host", p.dir)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Stop ends the pooler. Its connections break.
func (p *Pooler) Stop() error {
	err := p.end()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil // it was killed, or had ended before
	}
	return cmp.Or(err, os.RemoveAll(p.dir))
}
