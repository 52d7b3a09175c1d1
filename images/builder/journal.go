package builder

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/internal/lockfile"
)

// journal is the file of what a command makes for a name, written before it is made. It is locked
// while the command runs, so there is one at a time.
type journal struct {
	Build  string   `json:"build"`  // label of containers and images
	Former []string `json:"former"` // labels of earlier commands, some of whose images were in use
	Refs   []string `json:"refs"`   // names of images, to be removed unless they are in the table

	name string
	file *os.File
}

// begin locks the journal of a name; fault.ImageConflict while another command has it.
func (b *Builder) begin(name string) (*journal, error) {
	j, err := b.lock(name, os.O_CREATE)
	if errors.Is(err, lockfile.ErrLocked) {
		return nil, fault.New(fault.ImageConflict, "another command is at work on the image %s; wait until it has ended", name)
	}
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot write to %s: %s", b.cfg.Dir, fault.Reason(err))
	}
	if j.Build != "" {
		j.Former = append(j.Former, j.Build)
	}
	j.Build = b.cfg.NewID()
	return j, j.add()
}

func (b *Builder) lock(name string, flag int) (*journal, error) {
	for {
		f, err := os.OpenFile(b.path(name), os.O_RDWR|flag, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lockfile.Try(f); err != nil {
			_ = f.Close()
			return nil, err
		}
		// The command before may have removed the file after it was opened here.
		opened, err := f.Stat()
		if there, e := os.Stat(b.path(name)); err == nil && e == nil && os.SameFile(opened, there) {
			j := &journal{name: name, file: f}
			data, err := io.ReadAll(io.LimitReader(f, 1<<20))
			if err != nil {
				_ = lockfile.Close(f)
				return nil, err
			}
			_ = json.Unmarshal(data, j) // what was written in part names nothing that exists
			return j, nil
		}
		_ = lockfile.Close(f)
		if flag&os.O_CREATE == 0 {
			return nil, os.ErrNotExist
		}
	}
}

// add writes further names to the journal, durably.
func (j *journal) add(refs ...string) error {
	j.Refs = append(j.Refs, refs...)
	data, err := json.Marshal(j)
	if err == nil {
		_, err = j.file.WriteAt(append(data, '\n'), 0)
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fault.Wrap(fault.DiskFull, err, "cannot write %s: %s", j.file.Name(), fault.Reason(err))
	}
	return nil
}

// end removes what is in the journal and not in the table, and then the journal. inUse reports that
// containers use an image, so that the journal stays for a later Sweep.
func (b *Builder) end(ctx context.Context, j *journal) (inUse bool, err error) {
	defer lockfile.Close(j.file)
	inUse, err = b.clean(ctx, j)
	if err != nil {
		return inUse, fault.Wrap(fault.CodeOf(err), err, "what the command has left cannot be removed now; the next command or start tries again")
	}
	if inUse {
		return true, nil
	}
	// Windows does not remove an open file; there, an empty journal stays.
	if err := os.Remove(j.file.Name()); err != nil {
		_ = j.file.Truncate(0)
	}
	return false, nil
}

func (b *Builder) clean(ctx context.Context, j *journal) (inUse bool, err error) {
	inTable := ""
	image, err := b.cfg.Store.Get(ctx, j.name)
	switch {
	case err == nil:
		inTable = image.Ref
	case !fault.Is(err, fault.UnknownImage):
		return false, err
	}
	var builds []string
	if j.Build != "" { // else the command was killed before it began
		builds = append(j.Former, j.Build)
	}
	var errs []error
	for _, build := range builds {
		containers, err := b.cfg.CLI.Containers(ctx, label(build))
		errs = append(errs, err)
		for _, c := range containers {
			errs = append(errs, b.cfg.CLI.Remove(ctx, c))
		}
		// Without the directory, no probe has begun.
		if dir := b.probeDir(build); exists(dir) {
			errs = append(errs, b.cfg.CleanUp(ctx, build), os.RemoveAll(dir))
		}
	}
	for _, ref := range j.Refs {
		if ref == inTable {
			continue
		}
		err := b.cfg.CLI.RemoveImage(ctx, ref)
		if usedByContainer(err) {
			inUse, err = true, nil
		}
		errs = append(errs, err)
	}
	for _, build := range builds {
		errs = append(errs, b.cfg.CLI.PruneImages(ctx, label(build)))
	}
	return inUse, errors.Join(errs...)
}

// Sweep removes what commands have left that were killed, and images that containers used when they
// were to be removed. What cannot be removed now stays for the next time.
func (b *Builder) Sweep(ctx context.Context) {
	entries, err := os.ReadDir(b.cfg.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(filepath.Base(e.Name()), ".json")
		if !ok {
			continue
		}
		if j, err := b.lock(name, 0); err == nil {
			_, _ = b.end(ctx, j)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func usedByContainer(err error) bool {
	failed, ok := errors.AsType[*dockercli.Error](err)
	return ok && failed.Kind == dockercli.ImageInUse
}
