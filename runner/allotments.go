package runner

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"secbox/fault"
	"secbox/workspace"
)

// allotments remembers, in the state dir, for which execs an artifacts directory was made that no row speaks of yet: those of containers
// that wait for a job, and for an instant those of every exec. A process that ends without warning leaves them; the next one removes
// what they list. Each is one small file named by the exec, with the project in it. None is synced: what a loss of power leaves behind
// is an empty directory.
type allotments struct{ dir string }

func openAllotments(path string) (*allotments, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, stateDirError(err)
	}
	return &allotments{dir: path}, nil
}

// add is called before the directory is made.
func (a *allotments) add(execID, project string) error {
	if err := os.WriteFile(filepath.Join(a.dir, execID), []byte(project), 0o600); err != nil {
		return stateDirError(err)
	}
	return nil
}

// settle is called when the exec has its row, or its directory is gone.
func (a *allotments) settle(execID string) { _ = os.Remove(filepath.Join(a.dir, execID)) }

// recover removes the directories that an earlier process had allotted and never used. They are empty, because no job ever ran in them;
// one that is not stays.
func (a *allotments) recover(files *workspace.Workspace, log *slog.Logger) {
	list, err := os.Open(a.dir)
	if err != nil {
		log.Warn("unused artifacts directories of an earlier run cannot be looked for", "error", err)
		return
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(1024)
		for _, execID := range names {
			if err := a.release(files, execID); err != nil {
				log.Warn("an unused artifacts directory of an earlier run stays", "exec", execID, "error", err)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				log.Warn("unused artifacts directories of an earlier run cannot be looked for", "error", err)
			}
			return
		}
	}
}

func (a *allotments) release(files *workspace.Workspace, execID string) error {
	content, err := os.ReadFile(filepath.Join(a.dir, execID))
	if err != nil {
		return err
	}
	project, err := files.Existing(string(content))
	if err == nil {
		err = project.DropUnused(execID)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || fault.Is(err, fault.InvalidRequest) { // the last: a file cut short by a loss of power
		a.settle(execID)
		return nil
	}
	return err
}
