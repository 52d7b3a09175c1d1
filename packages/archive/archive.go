package archive

import (
	"context"
	"fmt"
	"io"
	"os"

	"secbox/fault"
	"secbox/internal/admission"
)

// Limits bounds an archive. All fields must be set.
type Limits struct {
	ArchiveBytes int64 // the archive as it was uploaded
	Files        int   // regular files, and as many directories
	Bytes        int64 // unpacked, all files together
	FileBytes    int64 // unpacked, one file
	Ratio        int   // unpacked to packed size, of an entry and in total; not checked below ratioFloor
	Depth        int   // names in a path below the skill's root, with the file's own
	PathBytes    int   // of a path, in the archive and below the skill's root
}

// DefaultLimits are the limits of a server: room for a skill with its models and data, on a disk
// that many users share. Depth and path are what the catalog allows, so that uploaded skills can be
// invoked. Text packs 3 to 20 to 1, and logs up to 100; deflate's maximum is 1032.
func DefaultLimits() Limits {
	return Limits{
		ArchiveBytes: 256 << 20,
		Files:        10_000,
		Bytes:        512 << 20,
		FileBytes:    256 << 20,
		Ratio:        200,
		Depth:        16,
		PathBytes:    1024,
	}
}

// ratioFloor is the unpacked size from which on ratios are checked: a megabyte of spaces is
// harmless.
const ratioFloor = 1 << 20

// Skill describes the content of an archive.
type Skill struct {
	ID        string
	Files     int   // regular files
	Bytes     int64 // of all files
	Flattened bool  // a folder A/A/ became A/
}

// Archive is an archive with a valid table of contents.
type Archive struct {
	zip  io.ReaderAt
	plan *plan
}

// Open opens an archive of one skill; see OpenSome.
func Open(ctx context.Context, zip io.ReaderAt, size int64, filename string, lim Limits) (*Archive, error) {
	all, err := OpenSome(ctx, zip, size, filename, Pick{}, lim)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// OpenSome reads and checks the table of contents of the archive in zip, and returns the picked
// skills, by path. filename is the client's name for the file, needed when the archive has no top
// folder. The memory used is bounded. Errors are the errors of Unpack, fault.SeveralSkills, which
// names the skills, and fault.InvalidRequest for path.
func OpenSome(ctx context.Context, zip io.ReaderAt, size int64, filename string, pick Pick, lim Limits) ([]*Archive, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	entries, err := readTable(zip, size, lim)
	if err != nil {
		return nil, err
	}
	plans, err := layOut(entries, filename, pick, lim)
	if err != nil {
		return nil, err
	}
	all := make([]*Archive, len(plans))
	for i, plan := range plans {
		if err := plan.checkSizes(size, lim); err != nil {
			return nil, err
		}
		all[i] = &Archive{zip, plan}
	}
	return all, nil
}

// Skill describes the content, as the table of contents gives it.
func (a *Archive) Skill() Skill { return a.plan.skill }

// Folders returns the number of directories below the skill's root.
func (a *Archive) Folders() int { return len(a.plan.dirs) }

// Unpack writes the skill to into, an empty directory that is not used by others meanwhile. It only
// creates files through this handle, never opens existing ones, and follows nothing. Files are 0644
// or 0755, directories 0755, whatever the umask. Nothing is synced to the disk. After an error,
// into may hold part of the skill. Calls may run concurrently, also on one archive. When ctx ends,
// Unpack fails with an error that wraps its cause.
//
// Errors: fault.InvalidArchive, fault.ArchiveTooLarge and fault.ReservedSkill name the entry and
// the remedy; fault.DiskFull; others are fault.Internal.
func (a *Archive) Unpack(ctx context.Context, into *os.Root) error {
	u := newUnpacker(a.zip, into)
	for _, dir := range a.plan.dirs {
		if err := u.mkdir(ctx, dir); err != nil {
			return err
		}
	}
	turn, err := admission.Begin(ctx)
	if err != nil {
		return givenUp(err)
	}
	defer turn.End()
	for _, f := range a.plan.files {
		if err := u.file(turn, f); err != nil {
			return err
		}
	}
	return nil
}

// ended returns the error of a context that has ended.
func ended(ctx context.Context) error {
	return givenUp(context.Cause(ctx))
}

func givenUp(err error) error {
	if err != nil {
		err = fmt.Errorf("the archive was given up: %w", err)
	}
	return err
}

// bad refuses the archive.
func bad(format string, args ...any) error { return fault.New(fault.InvalidArchive, format, args...) }

// badEntry refuses the archive because of an entry; the sentence goes on after its name.
func badEntry(name, format string, args ...any) error {
	return fault.New(fault.InvalidArchive, "the archive's entry %s %s", quoted(name), fmt.Sprintf(format, args...))
}

func tooLarge(format string, args ...any) error {
	return fault.New(fault.ArchiveTooLarge, format, args...)
}

// unreadable wraps an error of reading the archive; an early end is the archive's fault.
func unreadable(err error) error {
	if isEnd(err) {
		return bad("the archive is cut off: upload it again, completely")
	}
	return fault.Wrap(fault.Internal, err, "the uploaded archive cannot be read")
}
