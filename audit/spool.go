package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"secbox/fault"
	"secbox/workspace/diskspace"
)

// SpoolDir returns the spool's directory in a state dir.
func SpoolDir(stateDir string) string { return filepath.Join(stateDir, "spool") }

// spool is the directory of results that the database does not have yet: one file per exec,
// <exec_id>.json, the record as JSON. Files are written atomically, and survive a power failure
// once write has returned.
type spool struct {
	dir string
	// create creates a new file for writing. Tests replace it by one on a full device.
	create func(path string) (*os.File, error)
}

// The suffixes of files in the spool.
const (
	spoolDone = ".json" // a record
	spoolTemp = ".tmp"  // being written, or left by a crash
	spoolBad  = ".bad"  // a record that an earlier version set aside when the database refused it, or that it could not read
)

// maxSpooled is the most bytes of a file with a record. Its lists and texts are bounded, and as
// JSON one byte becomes at most six.
const maxSpooled = 16 << 20

func openSpool(dir string) (*spool, error) {
	s := &spool{
		dir: dir,
		create: func(path string) (*os.File, error) {
			return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		},
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, spoolFault(err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, spoolFault(err)
	}
	return s, s.tidy()
}

// tidy keeps files of a crash that are complete, and removes the others: their writes never
// returned. What it cannot remove stays, and is in the way of nothing but a result of the same
// exec.
func (s *spool) tidy() error {
	left, err := s.named(spoolTemp)
	if err != nil {
		return err
	}
	for _, name := range left {
		temp, done := filepath.Join(s.dir, name), spoolFile(strings.TrimSuffix(name, spoolTemp))
		if _, err := s.parse(name, done); err == nil {
			_ = os.Rename(temp, filepath.Join(s.dir, done))
		} else {
			_ = os.Remove(temp)
		}
	}
	return nil
}

// validSpoolID accepts ids that are safe file names, such as UUIDs.
func validSpoolID(execID string) bool {
	if execID == "" || len(execID) > 100 {
		return false
	}
	for _, c := range []byte(execID) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return true
}

func spoolFile(execID string) string { return execID + spoolDone }

// write puts a record into the spool, durably.
func (s *spool) write(r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the end of the exec could not be encoded")
	}
	temp := filepath.Join(s.dir, r.ExecID+spoolTemp)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a failure below
		return spoolFault(err)
	}
	if err := s.writeFile(temp, append(data, '\n')); err != nil {
		os.Remove(temp) // free its space; the next write reports if this fails
		return spoolFault(err)
	}
	if err := os.Rename(temp, filepath.Join(s.dir, spoolFile(r.ExecID))); err != nil {
		return spoolFault(err)
	}
	return spoolFault(syncDir(s.dir))
}

func (s *spool) writeFile(path string, data []byte) error {
	f, err := s.create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// list returns the names of the records in the spool.
func (s *spool) list() ([]string, error) {
	done, err := s.named(spoolDone)
	if err != nil {
		return nil, err
	}
	bad, err := s.named(spoolBad)
	return append(done, bad...), err
}

func (s *spool) named(ending string) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, spoolFault(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ending) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// read reads a record, which must be valid for Close and have the file's name.
func (s *spool) read(name string) (Record, error) {
	return s.parse(name, spoolFile(spooledID(name)))
}

// parse reads a record from a file that may have another name than its own.
func (s *spool) parse(name, own string) (Record, error) {
	path := filepath.Join(s.dir, name)
	switch info, err := os.Lstat(path); {
	case err != nil:
		return Record{}, err
	case !info.Mode().IsRegular():
		return Record{}, errors.New("it is no regular file")
	case info.Size() > maxSpooled:
		return Record{}, fmt.Errorf("it has %d bytes, and a record has at most %d", info.Size(), maxSpooled)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Record{}, err
	}
	return parseSpooled(own, data)
}

// spooledID returns the exec id in the name of a file.
func spooledID(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

func parseSpooled(name string, data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil { // unknown fields of a newer version are ignored
		return Record{}, err
	}
	switch {
	case !validSpoolID(r.ExecID) || spoolFile(r.ExecID) != name:
		return Record{}, fmt.Errorf("%s holds the record of exec %q", name, r.ExecID)
	case !r.Status.Valid() || !r.Status.Final() || r.EndedAt.IsZero():
		return Record{}, fmt.Errorf("%s holds a record with status %q, ended at %v", name, r.Status, r.EndedAt)
	case r.CreatedAt.IsZero():
		return Record{}, fmt.Errorf("%s holds a record without created_at", name)
	}
	return r, nil
}

// remove removes the files of a record that the database has.
func (s *spool) remove(execID string) error {
	for _, ending := range []string{spoolDone, spoolBad} {
		if err := os.Remove(filepath.Join(s.dir, execID+ending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// has reports whether the spool has a file of a record.
func (s *spool) has(execID string) bool {
	for _, ending := range []string{spoolDone, spoolBad} {
		if _, err := os.Lstat(filepath.Join(s.dir, execID+ending)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// spoolFault gives an error of the spool its code.
func spoolFault(err error) error {
	switch {
	case err == nil:
		return nil
	case diskspace.IsFull(err):
		return fault.Wrap(fault.DiskFull, err, "the state dir has no room for the exec's audit record; make room there")
	}
	return fault.Wrap(fault.Internal, err, "the exec's audit record cannot be written to the state dir; check its owner and mode")
}
