//go:build unix

// Package pgcluster starts temporary PostgreSQL clusters for tests and measurements: real servers
// from this machine's binaries, in a temporary folder, on a Unix socket only, with a password. They
// end with the process that started them. They do not sync, so nothing in them survives a power
// failure.
package pgcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Remedy is the remedy for missing PostgreSQL server binaries.
const Remedy = "no PostgreSQL server binaries (initdb, postgres) in PATH or /usr/lib/postgresql/*/bin; " +
	"run `make setup`, or: apt-get install postgresql-15"

const (
	superuser = "postgres"
	timeout   = 60 * time.Second // for the server to start or stop on a busy machine
)

// Cluster is one PostgreSQL server. Its methods are safe for concurrent use, except Stop, Resume
// and Remove.
type Cluster struct {
	bin       string // folder of the binaries
	dir       string // data/, sock/, log, pw
	password  string
	as        *syscall.Credential // the server's user; nil: ours
	databases atomic.Int64
	original  struct { // of all copies
		once sync.Once
		err  error
	}

	mu     sync.Mutex
	server *exec.Cmd
	lease  io.Closer // the server runs while it is open
}

// Start starts a cluster; Remove ends it. Its files are in a new folder below dir, or below the
// system's temporary folder when dir is empty or too deep for a socket.
func Start(dir string) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(shallow(dir), "secbox-pg-"); err != nil {
		return nil, err
	}
	secret := make([]byte, 12)
	rand.Read(secret) // never fails
	c := &Cluster{bin: bin, dir: dir, password: "pw-" + hex.EncodeToString(secret)}
	if err := c.initialise(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := c.Resume(); err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

// Database creates an empty database and returns its URL, with the password. It lives as long as
// the cluster.
func (c *Cluster) Database() (string, error) {
	return c.create(fmt.Sprintf("test_%d", c.databases.Add(1)), "template1")
}

// Copy creates a copy of a database that fill has filled in the first call, and returns its URL.
// Like a new database it lives as long as the cluster.
func (c *Cluster) Copy(fill func(url string) error) (string, error) {
	const original = "original"
	c.original.once.Do(func() {
		var url string
		if url, c.original.err = c.create(original, "template1"); c.original.err == nil {
			c.original.err = fill(url)
		}
	})
	if c.original.err != nil {
		return "", c.original.err
	}
	return c.create(fmt.Sprintf("test_%d", c.databases.Add(1)), original)
}

func (c *Cluster) create(name, template string) (string, error) {
	if _, err := c.SQL("postgres", "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return "", err
	}
	return c.URL(name), nil
}

// URL is how to reach a database of the cluster.
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password), Path: "/" + database,
		RawQuery: url.Values{"host": {c.socketDir()}, "port": {"5432"}}.Encode(),
	}
	return u.String()
}

// Password is the superuser's, for tests that search for leaks of it.
func (c *Cluster) Password() string { return c.password }

// SQL runs statements as the superuser over a connection of its own, and returns a line for each
// row, with | between the columns. When the server refuses them, the error is set and the output
// has the server's message.
func (c *Cluster) SQL(database, statements string) (string, error) {
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, c.URL(database))
	if err != nil {
		return err.Error(), err
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, statements).ReadAll()
	if err != nil {
		return err.Error(), err
	}
	var lines []string
	for _, result := range results {
		for _, columns := range result.Rows {
			lines = append(lines, string(bytes.Join(columns, []byte("|"))))
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n")), nil
}

func (c *Cluster) dataDir() string   { return filepath.Join(c.dir, "data") }
func (c *Cluster) socketDir() string { return filepath.Join(c.dir, "sock") }
func (c *Cluster) logFile() string   { return filepath.Join(c.dir, "log") }

// shallow returns the folder, or /tmp if a socket below it would exceed the system's limit of about
// 100 bytes.
func shallow(dir string) string {
	if dir == "" {
		dir = os.TempDir()
	}
	if len(dir) < 60 {
		return dir
	}
	return "/tmp"
}

// initialise creates the data directory. PostgreSQL refuses to run as root, so root uses the user
// of the Debian package.
func (c *Cluster) initialise() error {
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return fmt.Errorf("we are root, and PostgreSQL needs the user postgres: %w; %s", err, Remedy)
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return err
		}
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	pwFile := filepath.Join(c.dir, "pw")
	if err := os.WriteFile(pwFile, []byte(c.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(c.socketDir(), 0o700); err != nil {
		return err
	}
	if c.as != nil {
		for _, path := range []string{c.dir, pwFile, c.socketDir()} {
			if err := os.Chown(path, int(c.as.Uid), int(c.as.Gid)); err != nil {
				return err
			}
		}
	}
	cmd := c.command("initdb", "-D", c.dataDir(), "-U", superuser, "--pwfile="+pwFile, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// command is one of PostgreSQL's programs, as the server's user and without our PG… variables.
func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	return cmd
}

// supervisor runs the server while its standard input is open: until we close it or die. $1:
// postgres, $2: data, $3: sockets, $4: log; $0: the cluster's folder, which it removes unless it
// was told to stop.
const supervisor = `
trap '' INT TERM HUP
"$1" -D "$2" -k "$3" -c listen_addresses= -c port=5432 -c fsync=off -c full_page_writes=off -c max_connections=200 \
	-c shared_buffers=64MB -c autovacuum_naptime=1h -c logging_collector=off >>"$4" 2>&1 </dev/null &
server=$!
read -r word
kill -QUIT $server 2>/dev/null
wait $server
[ "$word" = stop ] || rm -rf "$0"
`

// Resume starts a stopped server again and waits until it answers.
func (c *Cluster) Resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	os.Remove(filepath.Join(c.dataDir(), "postmaster.pid")) // left by Stop; no other server can be here
	cmd := c.command("postgres")
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", supervisor, c.dir, filepath.Join(c.bin, "postgres"), c.dataDir(), c.socketDir(), c.logFile()}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C is for our process, with which the server ends
	lease, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.server, c.lease = cmd, lease

	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		out, err := c.SQL("postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(c.logFile())
			return fmt.Errorf("the server does not answer: %s\n%s", out, log)
		case <-poll.C:
		}
	}
}

// Stop ends the server at once, as a crash would, and waits for it. Connections break, data stays.
// Safe to call twice.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return nil
	}
	// The word tells the supervisor to keep the folder.
	_, err := io.WriteString(c.lease.(io.Writer), "stop\n")
	c.lease.Close()
	waitErr := c.server.Wait()
	c.server = nil
	if exit := (*exec.ExitError)(nil); errors.As(waitErr, &exit) {
		waitErr = nil // the status of the last check in the script, or of the server
	}
	return errors.Join(err, waitErr)
}

// Remove stops the server and removes its files.
func (c *Cluster) Remove() error { return errors.Join(c.Stop(), os.RemoveAll(c.dir)) }

// binaries finds the newest installed server.
func binaries() (string, error) {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // only a bad pattern is an error
	slices.SortFunc(folders, func(a, b string) int { return version(b) - version(a) })
	for _, folder := range append(folders, filepath.SplitList(os.Getenv("PATH"))...) {
		if has(folder, "initdb") && has(folder, "postgres") {
			return folder, nil
		}
	}
	return "", errors.New(Remedy)
}

func version(folder string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder))) // 0 if it is no version
	return n
}

func has(folder, name string) bool {
	info, err := os.Stat(filepath.Join(folder, name))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
