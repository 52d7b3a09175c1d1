package places

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"secbox/sandbox"
	"secbox/sandbox/files"
	"secbox/workspace"
)

// The directories of a project, as jobs see them. Artifacts belong to execs, whose routes check
// them.
const (
	workPath   = sandbox.Root + "/work"
	inputsPath = sandbox.Root + "/inputs"
)

// Project is the files of a project on this machine: work/, and inputs/ for reading.
type Project struct {
	Of   *workspace.Project
	Room func() error // returns fault.DiskFull if the disk has too little room
}

var _ Files = Project{}

// in calls f with the directory that a path leads into, and the path as package files takes it.
func (p Project) in(op, name string, change bool, f func(in *files.Files, below string) error) (err error) {
	defer func() { // with the path as it was given
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = &fs.PathError{Op: at.Op, Path: name, Err: at.Err}
		}
	}()
	below, err := sandbox.Clean(op, name, sandbox.Root)
	if err != nil {
		return err
	}
	part, rest, _ := strings.Cut(below, "/")
	at := path.Join(sandbox.Root, rest)
	switch sandbox.Root + "/" + part {
	case workPath:
		work, err := p.Of.WorkDir()
		if err != nil {
			return missing(op, name, err)
		}
		defer work.Close()
		return f(files.New(files.Config{Root: work.Dir, UID: work.UID, GID: work.GID, Room: p.Room, LockEdits: work.LockEdits}), at)
	case inputsPath:
		if change {
			return sandbox.Refused(op, name)
		}
		inputs, err := p.Of.Inputs()
		if err != nil {
			return missing(op, name, err)
		}
		defer inputs.Close()
		return f(files.New(files.Config{Root: inputs, UID: -1, GID: -1}), at)
	}
	if change {
		return sandbox.Refused(op, name)
	}
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// missing is the error of a directory of the project that cannot be opened.
func missing(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return err
}

// List implements Files.
func (p Project) List(ctx context.Context, name, after string, limit int) (l Listing, err error) {
	if clean := path.Clean(name); clean == sandbox.Root {
		return p.top(ctx, after, limit)
	}
	err = p.in("readdir", name, false, func(in *files.Files, below string) error {
		fi, err := in.Stat(ctx, below)
		if err != nil {
			return err
		}
		l.Entry = Entry{Name: path.Base(path.Clean(name)), Mode: fi.Mode, Size: fi.Size, Modified: fi.ModTime}
		if !fi.IsDir || limit <= 0 {
			return nil
		}
		all, err := in.ReadDir(ctx, below)
		if err != nil {
			return err
		}
		from, found := slices.BinarySearchFunc(all, after, func(e sandbox.DirEntry, after string) int {
			return strings.Compare(e.Name, after)
		})
		if found {
			from++
		}
		all = all[from:]
		if len(all) > limit {
			all = all[:limit]
			l.Next = all[limit-1].Name
		}
		for _, e := range all {
			l.Entries = append(l.Entries, Entry{Name: e.Name, Mode: e.Mode, Size: e.Size, Modified: e.ModTime})
		}
		return nil
	})
	return l, err
}

// top lists the directory above work/ and inputs/.
func (p Project) top(ctx context.Context, after string, limit int) (l Listing, err error) {
	l.Entry = Entry{Name: path.Base(sandbox.Root), Mode: fs.ModeDir | 0o755}
	for _, name := range []string{inputsPath, workPath} {
		one, err := p.List(ctx, name, "", 0)
		if err != nil {
			return l, err
		}
		if one.Name > after && len(l.Entries) < limit {
			l.Entries = append(l.Entries, one.Entry)
		} else if one.Name > after && limit > 0 {
			l.Next = l.Entries[limit-1].Name
		}
	}
	return l, nil
}

// Read implements Files.
func (p Project) Read(ctx context.Context, name string, most int64, reserve func(int64) error) (content []byte, err error) {
	opened, err := p.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	if opened.Size > most {
		return nil, tooLarge(name, opened.Size, most)
	}
	if err := reserve(2 * opened.Size); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(int(opened.Size) + bytes.MinRead)
	if _, err := io.Copy(&b, io.LimitReader(opened, opened.Size)); err != nil { // it may grow
		return nil, err
	}
	return b.Bytes(), nil
}

// Open implements Files.
func (p Project) Open(ctx context.Context, name string) (o Opened, err error) {
	err = p.in("open", name, false, func(in *files.Files, below string) error {
		file, info, err := in.Open(ctx, below)
		if err == nil {
			o = Opened{file, info.Size, info.ModTime}
		}
		return err
	})
	return o, err
}

// Write implements Files.
func (p Project) Write(ctx context.Context, name string, r io.Reader, was string) (before string, err error) {
	err = p.in("write", name, true, func(in *files.Files, below string) error {
		if below == sandbox.Root {
			return sandbox.Invalid("write", name)
		}
		if err := in.MkdirAll(ctx, path.Dir(below), 0o755); err != nil {
			return err
		}
		if before = was; was != "" {
			_, err := in.ReplaceFile(ctx, below, r, was)
			return err
		}
		info, err := in.Stat(ctx, below)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			before = sandbox.Absent
		case err != nil:
			return err
		case info.Mode.IsRegular():
			before = digestNow(ctx, p, name)
		}
		_, err = in.WriteFileFrom(ctx, below, r, 0o644)
		return err
	})
	return before, err
}

// MakeDir implements Files.
func (p Project) MakeDir(ctx context.Context, name string) error {
	return p.in("mkdir", name, true, func(in *files.Files, below string) error { return in.MkdirAll(ctx, below, 0o755) })
}

// Move implements Files. Both paths are in work/.
func (p Project) Move(ctx context.Context, name, to string, replace bool) error {
	err := p.in("move", name, true, func(in *files.Files, below string) error {
		return p.in("move", to, true, func(_ *files.Files, target string) error { return in.Move(ctx, below, target, replace) })
	})
	return unmoved(ctx, p, name, to, err)
}

// Remove implements Files.
func (p Project) Remove(ctx context.Context, name string, all bool) error {
	return p.in("remove", name, true, func(in *files.Files, below string) error {
		err := in.Remove(ctx, below)
		switch {
		case !errors.Is(err, fs.ErrExist):
			return err
		case all:
			if err = in.RemoveAll(ctx, below); errors.Is(err, fs.ErrPermission) {
				err = notWhole(name, err)
			}
			return err
		}
		return notEmpty(name)
	})
}
