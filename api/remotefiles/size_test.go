package remotefiles

import (
	"context"
	"errors"
	"io"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/sandbox"
)

// liar is a machine that reports a small size and sends a large file.
type liar struct {
	sandbox.Backend
	taken int // bytes that were kept
}

func (*liar) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	return &sandbox.FileInfo{Name: "notes.txt", Size: 1}, nil
}

func (l *liar) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (int64, error) {
	piece := make([]byte, 256<<10)
	for l.taken < sandbox.MaxFileBytes {
		n, err := w.Write(piece)
		if l.taken += n; err != nil {
			return int64(l.taken), errors.New("not wanted any more")
		}
	}
	return int64(l.taken), nil
}

func (l *liar) ReadFile(context.Context, string, sandbox.User) ([]byte, error) {
	l.taken = sandbox.MaxFileBytes
	return make([]byte, sandbox.MaxFileBytes), nil // never written, so it takes no memory
}

// TestMachineReportsWrongSize: the content takes no more memory than the largest allowed file.
func TestMachineReportsWrongSize(t *testing.T) {
	t.Parallel()
	l := &liar{}
	_, err := Files{Sandbox: l, Reserve: func(int64) error { return nil }}.SandboxRead(t.Context(), library.Owner{AgentID: "ag", UserID: "u"}, "notes.txt")
	if !fault.Is(err, fault.FileTooLarge) || l.taken > library.MaxFileBytes {
		t.Errorf("%v, with %d bytes in memory", err, l.taken)
	}
}
