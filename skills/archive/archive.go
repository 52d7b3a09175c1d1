package archive

import (
	"context"
	"fmt"
	"io"
	"os"

	"secbox/fault"
)

// Limits is what an archive may be at most. All of them must be set.
type Limits struct {
	ArchiveBytes int64 // the archive as it was uploaded
	Files        int   // regular files, and as many folders
	Bytes        int64 // unpacked, all files together
	FileBytes    int64 // unpacked, one file
	Ratio        int   // unpacked to packed, of an entry and of all together; below ratioFloor it is not asked
	Depth        int   // names in a path below the skill's root, the file's own included
	PathBytes    int   // of a path, in the archive and below the skill's root
}

// DefaultLimits is what a server without other wishes takes: room for a skill with its models and data, on a disk that many users
// share. Depth and path are what the catalog walks, so that what can be uploaded can also be invoked. Text packs 3 to 20 to 1, logs up
// to 100; a bomb needs more than that, and deflate can do 1032.
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

// ratioFloor is how much may be unpacked before ratios are looked at: a megabyte of spaces harms nobody.
const ratioFloor = 1 << 20

// Skill is what an archive held.
type Skill struct {
	ID        string
	Files     int   // regular files that were written
	Bytes     int64 // of them
	Flattened bool  // A/A/ became A/
}

// Unpack writes the skill in the archive to into, an empty directory that nobody else uses meanwhile, through this handle only: it
// creates, never opens what is there, and follows nothing. Files are 0644 or 0755, directories 0755, whatever the umask. Nothing is
// synced to the disk; that is the caller's decision. On error into may hold a part of the skill: throw it away.
//
// zip is read at any place and by this call only as far as size; filename is what the client called the file, and needed when the
// archive has no top folder. The memory used does not grow with the archive beyond its table of contents, which is bounded. Calls may
// run at once, on one archive too. When ctx ends, so does Unpack, with an error that wraps its cause.
//
// Errors: fault.InvalidArchive, fault.ArchiveTooLarge and fault.ReservedSkill name the entry and the remedy, fault.DiskFull; others
// are this machine's.
func Unpack(ctx context.Context, zip io.ReaderAt, size int64, filename string, into *os.Root, lim Limits) (Skill, error) {
	a, err := Open(ctx, zip, size, filename, lim)
	if err != nil {
		return Skill{}, err
	}
	if err := a.Unpack(ctx, into); err != nil {
		return Skill{}, err
	}
	return a.Skill(), nil
}

// Archive is one whose table of contents was read and found good: what it will unpack to is known, and Unpack holds it to that.
type Archive struct {
	zip  io.ReaderAt
	plan *plan
}

// Open reads the table of contents; it is the first half of Unpack.
func Open(ctx context.Context, zip io.ReaderAt, size int64, filename string, lim Limits) (*Archive, error) {
	if err := given(ctx); err != nil {
		return nil, err
	}
	entries, err := readTable(zip, size, lim)
	if err != nil {
		return nil, err
	}
	plan, err := layOut(entries, filename, lim)
	if err != nil {
		return nil, err
	}
	if err := plan.checkSizes(size, lim); err != nil {
		return nil, err
	}
	return &Archive{zip, plan}, nil
}

// Skill is what the archive holds, if it holds what it says.
func (a *Archive) Skill() Skill { return a.plan.skill }

// Folders is how many there are below the skill's own.
func (a *Archive) Folders() int { return len(a.plan.dirs) }

// Unpack is the second half of the function of that name.
func (a *Archive) Unpack(ctx context.Context, into *os.Root) error {
	u := newUnpacker(a.zip, into)
	for _, dir := range a.plan.dirs {
		if err := u.mkdir(ctx, dir); err != nil {
			return err
		}
	}
	for _, f := range a.plan.files {
		if err := u.file(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// given is the error of a context that has ended.
func given(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("the archive was given up: %w", context.Cause(ctx))
	}
	return nil
}

// bad refuses an archive as a whole.
func bad(format string, args ...any) error { return fault.New(fault.InvalidArchive, format, args...) }

// badEntry refuses one for an entry; the sentence goes on after its name.
func badEntry(name, format string, args ...any) error {
	return fault.New(fault.InvalidArchive, "the archive's entry %s %s", quoted(name), fmt.Sprintf(format, args...))
}

func tooLarge(format string, args ...any) error {
	return fault.New(fault.ArchiveTooLarge, format, args...)
}

// unreadable is a failure to read the archive: one of its length is the archive's, any other is ours.
func unreadable(err error) error {
	if isEnd(err) {
		return bad("the archive is cut off: upload it again, completely")
	}
	return fault.Wrap(fault.Internal, err, "the uploaded archive cannot be read")
}
