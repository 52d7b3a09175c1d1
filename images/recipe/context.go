package recipe

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/internal/whole"
)

// Bounds of a build context.
const (
	maxLock           = 4 << 20
	maxLockLine       = 64 << 10 // of a package, whose hashes are many lines
	maxContextBytes   = 4 << 30
	maxContextEntries = 100_000
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Check reads the lock and looks at the files below root, so that a build does not begin in vain.
func (r Recipe) Check(root *os.Root) error {
	if _, err := r.lock(root); err != nil {
		return err
	}
	for _, name := range r.paths() {
		if _, err := root.Lstat(name); err != nil {
			return cannotRead(name, err)
		}
	}
	return nil
}

func (r Recipe) paths() []string {
	var all []string
	if r.Pip.Wheels != "" {
		all = append(all, r.Pip.Wheels)
	}
	for _, f := range r.Files {
		all = append(all, f.From)
	}
	return all
}

func cannotRead(name string, err error) error {
	if path.IsAbs(name) || strings.Contains(err.Error(), "escapes") {
		return fault.New(fault.InvalidRequest, "%q leads out of the directory of the file", whole.Shorten(name))
	}
	return fault.New(fault.InvalidRequest, "cannot read %q below the directory of the file: %s", whole.Shorten(name), fault.Reason(err))
}

// lock returns the checked lock of pip; nil without one.
func (r Recipe) lock(root *os.Root) ([]byte, error) {
	switch {
	case len(r.Pip.Packages) > 0:
		return []byte(strings.Join(r.Pip.Packages, "\n") + "\n"), nil
	case r.Pip.Lock == "":
		return nil, nil
	}
	f, err := open(root, r.Pip.Lock)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLock+1))
	if err != nil {
		return nil, cannotRead(r.Pip.Lock, err)
	}
	if len(data) > maxLock {
		return nil, fault.New(fault.InvalidRequest, "the lock %s has more than %d MiB", r.Pip.Lock, maxLock>>20)
	}
	packages, why := readLock(string(data))
	if why != "" {
		return nil, fault.New(fault.InvalidRequest, "the lock %s, %s; `pip-compile --generate-hashes` and `uv pip compile --generate-hashes` "+
			"write a lock", r.Pip.Lock, why)
	}
	return packages, nil
}

var (
	lockLine = regexp.MustCompile(`^` + pipName + `( *; *([A-Za-z0-9_.'"()<>=!~,+*]+[ -]?)+?)?( +--hash=sha256:[0-9a-f]{64})+$`)
	spaces   = regexp.MustCompile(`\s+`)
)

// readLock returns the packages of a lock, one a line, or what is wrong with it. It may have only
// exact versions with hashes, so that no line can name another index, a URL or a further file. pip
// gets nothing else of it: pip ends lines at more characters, and a comment may name an encoding.
func readLock(text string) (packages []byte, why string) {
	first, logical := 0, ""
	for n, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = ""
		}
		line, _, _ = strings.Cut(line, " #")
		if logical == "" {
			first = n + 1
		}
		part, more := strings.CutSuffix(strings.TrimSpace(line), `\`)
		logical = strings.TrimSpace(logical + " " + part)
		if len(logical) > maxLockLine {
			return nil, fmt.Sprintf("line %d: the package has more than %d KiB", first, maxLockLine>>10)
		}
		if more || logical == "" {
			continue
		}
		logical = spaces.ReplaceAllString(logical, " ")
		switch {
		case lockLine.MatchString(logical):
			packages = append(packages, logical+"\n"...)
		case strings.HasPrefix(logical, "-"):
			return nil, fmt.Sprintf("line %d: %q is an option, and a lock has only packages", first, whole.Shorten(logical))
		case !strings.Contains(logical, "=="):
			return nil, fmt.Sprintf("line %d: %q has no exact version (==)", first, whole.Shorten(logical))
		case !strings.Contains(logical, "--hash=sha256:"):
			return nil, fmt.Sprintf("line %d: %q has no --hash=sha256:…", first, whole.Shorten(logical))
		default:
			return nil, fmt.Sprintf("line %d: %q is not name==version --hash=sha256:…", first, whole.Shorten(logical))
		}
		logical = ""
	}
	if len(packages) == 0 {
		return nil, "which has no packages"
	}
	return packages, ""
}

// open opens a regular file below root, and does not wait for a FIFO.
func open(root *os.Root, name string) (*os.File, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, cannotRead(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.InvalidRequest, "%s is no regular file; copy what it should be there", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, cannotRead(name, err)
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		_ = f.Close()
		return nil, fault.New(fault.InvalidRequest, "%s was changed meanwhile; try again", name)
	}
	return f, nil
}

// WriteContext writes the build context as a tar archive.
func (r Recipe) WriteContext(w io.Writer, root *os.Root, dockerfile string) error {
	c := context{tar: tar.NewWriter(w), root: root}
	if err := c.content("Dockerfile", []byte(dockerfile)); err != nil {
		return err
	}
	lock, err := r.lock(root)
	if err != nil {
		return err
	}
	if lock != nil {
		err = c.content(pipDir+"/lock.txt", lock)
	}
	if err == nil && r.Pip.Wheels != "" {
		err = c.tree(r.Pip.Wheels, pipDir+"/wheels")
	}
	for i, f := range r.Files {
		if err == nil {
			err = c.tree(f.From, fmt.Sprint(filesDir, "/", i))
		}
	}
	if err != nil {
		return err
	}
	return c.tar.Close()
}

type context struct {
	tar     *tar.Writer
	root    *os.Root
	bytes   int64
	entries int
}

// written is the time of all entries, so that the same files make the same context.
var written = time.Unix(0, 0)

func (c *context) content(name string, data []byte) error {
	return c.add(name, int64(len(data)), 0o644, bytes.NewReader(data))
}

func (c *context) add(name string, size int64, mode int64, from io.Reader) error {
	c.entries++
	c.bytes += size
	if c.entries > maxContextEntries || c.bytes > maxContextBytes {
		return fault.New(fault.InvalidRequest, "the files of the image have more than %d entries or %d GiB", maxContextEntries,
			maxContextBytes>>30)
	}
	h := tar.Header{Name: name, Size: size, Mode: mode, ModTime: written, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if from == nil {
		h.Typeflag = tar.TypeDir
	}
	if err := c.tar.WriteHeader(&h); err != nil || from == nil {
		return err
	}
	_, err := io.CopyN(c.tar, from, size)
	if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidRequest, "%s was cut short meanwhile; try again", name)
	}
	return err
}

// tree adds a file, or a directory with what is below it.
func (c *context) tree(from, to string) error {
	info, err := c.root.Lstat(from)
	if err != nil {
		return cannotRead(from, err)
	}
	if !info.IsDir() {
		f, err := open(c.root, from)
		if err != nil {
			return err
		}
		defer f.Close()
		mode := int64(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		return c.add(to, info.Size(), mode, f)
	}
	if err := c.add(to+"/", 0, 0o755, nil); err != nil {
		return err
	}
	names, err := fs.ReadDir(c.root.FS(), from)
	if err != nil {
		return cannotRead(from, err)
	}
	for _, entry := range names {
		if err := c.tree(path.Join(from, entry.Name()), to+"/"+entry.Name()); err != nil {
			return err
		}
	}
	return nil
}
