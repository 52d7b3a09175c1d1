package docker

import (
	"context"
	"io"
	"io/fs"

	"secbox/fault"
	"secbox/sandbox"
)

// Sandbox implements sandbox.Sandbox, sandbox.Streamer and sandbox.Locator.
type Sandbox struct{ cfg Config }

var (
	_ sandbox.Sandbox  = (*Sandbox)(nil)
	_ sandbox.Streamer = (*Sandbox)(nil)
	_ sandbox.Locator  = (*Sandbox)(nil)
)

// New makes the sandbox; nothing is started before it is asked for. Close ends all containers; it comes before the engine's Close.
func New(cfg Config) *Sandbox { return &Sandbox{cfg: cfg} }

var errNotYet = fault.New(fault.Unsupported, "not yet")

func (s *Sandbox) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return nil, errNotYet
}

func (s *Sandbox) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	return nil, errNotYet
}

func (s *Sandbox) ReadFile(ctx context.Context, path string, user sandbox.User) ([]byte, error) {
	return nil, errNotYet
}

func (s *Sandbox) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	return errNotYet
}

func (s *Sandbox) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	return 0, errNotYet
}

func (s *Sandbox) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	return 0, errNotYet
}

func (s *Sandbox) Stat(ctx context.Context, path string, user sandbox.User) (*sandbox.FileInfo, error) {
	return nil, errNotYet
}

func (s *Sandbox) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	return nil, errNotYet
}

func (s *Sandbox) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	return errNotYet
}

func (s *Sandbox) Remove(ctx context.Context, path string, user sandbox.User) error { return errNotYet }

func (s *Sandbox) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	return errNotYet
}

func (s *Sandbox) GetShell(ctx context.Context, user sandbox.User) (string, error) {
	return "/bin/bash", nil
}

func (s *Sandbox) Name() string { return sandbox.Docker }

func (s *Sandbox) Close() error { return nil }

func (s *Sandbox) CloseForUser(user sandbox.User) error { return nil }

func (s *Sandbox) IsExporting(user sandbox.User) bool { return false }

func (s *Sandbox) ExportAndImport(ctx context.Context, user sandbox.User) error { return errNotYet }

func (s *Sandbox) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	return sandbox.Location{}, errNotYet
}
