// Package secrets reads the values of sandbox.secrets, which core-api adds to requests of jobs. A
// value is in the memory of this process only: no error, log line or file has it, and neither has
// what a command writes that prints it.
package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/policy"
)

// Source is a secret. One of File, Env and Command has its value.
type Source struct {
	File    string
	Env     string
	Command []string

	Hosts  []string // see policy.HostRule
	Tokens []string // ids or names of the tokens that may use it; nil: all
}

// Set is all secrets. It is safe for concurrent use.
type Set struct {
	environ map[string]string // of the variables of Env
	log     *slog.Logger
	now     func() time.Time
	all     map[string]*secret
}

type secret struct {
	Source
	rules []policy.HostRule

	mu    sync.Mutex // held while it is read
	read  time.Time
	value string
	err   error
}

// New makes a Set. It keeps of the environment what secrets name.
func New(sources map[string]Source, environ []string, now func() time.Time, log *slog.Logger) *Set {
	s := &Set{environ: map[string]string{}, log: log, now: now, all: map[string]*secret{}}
	for name, source := range sources {
		s.all[name] = &secret{Source: source, rules: policy.HostRules(source.Hosts)}
		for _, entry := range environ {
			if key, value, _ := strings.Cut(entry, "="); key == source.Env && key != "" {
				s.environ[key] = value
			}
		}
	}
	return s
}

// Without returns the environment without the variables that secrets name.
func (s *Set) Without(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, secret := s.environ[name]
		return secret
	})
}

// Hosts returns the rules of all hosts.
func (s *Set) Hosts() (rules []string) {
	for _, one := range s.all {
		rules = append(rules, one.Hosts...)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// Allows reports whether a token may use a secret.
func (s *Set) Allows(name, tokenID, tokenName string) bool {
	one := s.all[name]
	return one != nil && (one.Tokens == nil || tokenID != "" && slices.Contains(one.Tokens, tokenID) ||
		tokenName != "" && slices.Contains(one.Tokens, tokenName))
}

const (
	maxAge         = time.Minute // of a value, or of an error
	maxValue       = 8 << 10     // bytes
	commandTimeout = 10 * time.Second
)

// Value returns the value of a secret for a host. It reads it at most once a minute. Its error is a
// sentence without anything of the value.
func (s *Set) Value(ctx context.Context, name, host string, port uint16) (string, error) {
	one := s.all[name]
	if one == nil || !slices.ContainsFunc(one.rules, func(r policy.HostRule) bool { return r.AllowsName(host, port) }) {
		return "", fmt.Errorf("the secret %s is no longer for this host; ask the operator about sandbox.secrets", name)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if now := s.now(); one.read.IsZero() || now.Sub(one.read) >= maxAge || now.Before(one.read) {
		one.value, one.err = s.fetch(context.WithoutCancel(ctx), one.Source)
		one.read = now
		if one.err != nil {
			s.log.Error("a secret cannot be read", "secret", name, "error", one.err)
		}
	}
	if one.err != nil {
		return "", fmt.Errorf("the secret %s cannot be read now; tell the operator, and that the log of core-api says why", name)
	}
	return one.value, nil
}

// fetch reads a value.
func (s *Set) fetch(ctx context.Context, from Source) (string, error) {
	var data []byte
	var err error
	switch {
	case from.File != "":
		data, err = readFile(from.File)
	case from.Env != "":
		data = []byte(s.environ[from.Env])
	default:
		data, err = output(ctx, from.Command)
	}
	if err != nil {
		return "", err
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case value == "":
		return "", errors.New("it is empty")
	case len(data) > maxValue:
		return "", fmt.Errorf("it has more than %d bytes", maxValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return "", errors.New("it has control characters, more than one line, or is no UTF-8")
	}
	return value, nil
}

func readFile(path string) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	return io.ReadAll(io.LimitReader(f, maxValue+1))
}

// output returns what a command prints.
func output(ctx context.Context, argv []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out := &bounded{left: maxValue + 1}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.WaitDelay = "/", out, time.Second
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home(), "LANG=C.UTF-8"}
	inGroup(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("its command did not end in %s", commandTimeout)
		}
		return nil, fmt.Errorf("its command: %w", err)
	}
	return out.Bytes(), nil
}

func home() string {
	dir, _ := os.UserHomeDir()
	return dir
}

// bounded keeps the first bytes of what is written.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	_, _ = b.Buffer.Write(p[:n])
	return len(p), nil
}
