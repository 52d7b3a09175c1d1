package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"secbox/fault"
	"secbox/workspace"
)

// pendingDirs lists, in the state dir, the execs whose artifacts directory was made and whose job
// has not begun yet. An exec of a container that waits for a job stays in the list, any other exec
// for an instant. When a process ends without warning, the next one removes the directories. An
// entry is a small file, named by the exec, that contains the project. None is synced: a loss of
// power leaves at most an empty directory.
type pendingDirs struct{ dir string }

// recoverTimeout is how long the records of pending directories may take to read, all together.
const recoverTimeout = 30 * time.Second

func openPendingDirs(path string) (*pendingDirs, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, stateDirError(err)
	}
	return &pendingDirs{dir: path}, nil
}

// add is called before the directory is made.
func (p *pendingDirs) add(execID, project string) error {
	if err := os.WriteFile(filepath.Join(p.dir, execID), []byte(project), 0o600); err != nil {
		return stateDirError(err)
	}
	return nil
}

// remove is called when the exec has its row, or its directory is gone.
func (p *pendingDirs) remove(execID string) { _ = os.Remove(filepath.Join(p.dir, execID)) }

// recover removes the directories that an earlier process left pending. No job ran in them, so they
// are empty. It keeps directories that are not empty, and directories of execs that have not ended:
// another node may run them by now.
func (p *pendingDirs) recover(files *workspace.Workspace, records Log, log *slog.Logger) {
	list, err := os.Open(p.dir)
	if err != nil {
		log.Warn("cannot list unused artifacts directories of an earlier run", "error", err)
		return
	}
	defer list.Close()
	ctx, cancel := context.WithTimeout(context.Background(), recoverTimeout)
	defer cancel()
	for {
		names, err := list.Readdirnames(1024)
		for _, execID := range names {
			if err := p.release(ctx, files, records, execID); err != nil {
				log.Warn("an unused artifacts directory of an earlier run stays", "exec", execID, "error", err)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				log.Warn("cannot list unused artifacts directories of an earlier run", "error", err)
			}
			return
		}
	}
}

func (p *pendingDirs) release(ctx context.Context, files *workspace.Workspace, records Log, execID string) error {
	record, err := records.Get(ctx, execID)
	if err == nil && !record.Status.Final() {
		p.remove(execID)
		return nil
	}
	if err != nil && !fault.Is(err, fault.UnknownExec) {
		return err
	}
	content, err := os.ReadFile(filepath.Join(p.dir, execID))
	if err != nil {
		return err
	}
	project, err := files.Existing(string(content))
	if err == nil {
		err = project.DropUnused(execID)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || fault.Is(err, fault.InvalidRequest) { // the last: a loss of power cut the file short
		p.remove(execID)
		return nil
	}
	return err
}
