package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"secbox/engine/initproto"
	"secbox/engine/transfer"
	"secbox/fault"
)

// Copying bounds what is copied into a container that mounts nothing of its project, and what its
// job has changed and comes back, each by itself.
type Copying struct {
	MaxBytes   int64 // of files' content, without holes
	MaxEntries int   // files, directories and links; sandbox-init remembers some 150 bytes of each
}

// copies are the directories of an exec in a container that mounts none of them, as mountPoints are
// in a container that can. They are sent when the exec's inputs are in place, just before the job.
// What the job has changed is received between the death of its last process and its exit. A nil
// copies belongs to a container with mounts.
type copies struct {
	bounds transfer.Bounds
	owner  transfer.Owner

	ctx     context.Context // of the exec
	dirs    []transfer.Dir
	staging *os.Root
	sent    transfer.Report
	isSent  bool

	back     *io.PipeWriter // to the goroutine that receives; nil before the first chunk
	taken    int64          // bytes of chunks
	late     *patience
	stop     func() (removing bool) // ends the guard of the transfer
	ignore   func() bool            // ends the wait for the end of ctx; false: it had ended
	received sync.WaitGroup
	report   transfer.Report
	err      error // of receiving
}

func newCopies(c Copying, user string) *copies {
	owner := transfer.Owner{UID: -1, GID: -1}
	uid, gid, _ := strings.Cut(user, ":")
	if u, err := strconv.Atoi(uid); err == nil {
		owner.UID = u
	}
	if g, err := strconv.Atoi(gid); err == nil {
		owner.GID = g
	}
	return &copies{bounds: transfer.Bounds{Bytes: c.MaxBytes, Entries: c.MaxEntries}, owner: owner}
}

// errNoFiles reports a sandbox-init that takes no files.
var errNoFiles = errors.New("the sandbox-init in the image is older than core-api, and takes no files: rebuild the image")

// noCopies refuses a container that serves many jobs: its files would have to be copied all the
// time.
func noCopies() error {
	return fault.New(fault.Unsupported, "sessions and users' containers need the workspace on a volume that containers can mount: "+
		"set sandbox.kubernetes.volume_claim")
}

// open opens the directories of an exec.
func (c *copies) open(set MountSet) (err error) {
	if len(set.Mounts) == 0 {
		return nil
	}
	if set.Open == nil {
		return errors.New("the directories of the exec can only be mounted")
	}
	files, err := set.Open()
	if err != nil {
		return err
	}
	roots, err := transfer.OpenDirs(files)
	if err != nil {
		return err
	}
	for i, m := range set.Mounts {
		c.dirs = append(c.dirs, transfer.Dir{Target: m.Target, ReadOnly: m.ReadOnly, Root: roots[i]})
	}
	if set.Staging != nil {
		c.staging, err = set.Staging()
		for i := range c.dirs {
			c.dirs[i].Staging = c.staging
		}
	}
	return err
}

// close closes the directories and ends a transfer that is not complete. Nothing is received after
// it returns.
func (c *copies) close() {
	if c == nil {
		return
	}
	if c.back != nil {
		c.back.CloseWithError(io.ErrUnexpectedEOF)
		c.received.Wait()
		c.ignore()
		c.stop()
	}
	for _, d := range c.dirs {
		d.Root.Close()
	}
	if c.staging != nil {
		c.staging.Close()
	}
	c.dirs, c.staging = nil, nil
}

// sendFiles copies the directories of an exec into a container that has said hello and has no
// mounts. After an error nothing has run in the container, and it is of no more use. Another
// container may take the files, unless the error is a *fault.Error.
func (s *session) sendFiles(ctx context.Context, set MountSet) error {
	c := s.copies
	if c == nil {
		return nil
	}
	c.ctx = ctx
	var gone error // the container is
	err := c.open(set)
	if err == nil {
		late := newPatience()
		stop := s.guardUntil(ctx, late.timer)
		var buf []byte
		c.sent, err = transfer.Send(initproto.ChunkWriter(func(chunk []byte) error {
			late.extend(len(chunk))
			buf = initproto.Append(buf[:0], initproto.TypeFiles, chunk)
			gone = s.send(buf)
			return gone
		}), c.dirs, c.bounds)
		if err == nil {
			gone = s.send(initproto.Append(nil, initproto.TypeFilesEnd, nil))
		}
		if stop() && gone == nil {
			gone = errors.New("the container did not take the files in time")
		}
	}
	err = cmp.Or(gone, err)
	if err == nil {
		c.isSent = true
		return nil
	}
	c.close()
	if ctx.Err() != nil {
		return fault.Wrap(fault.Internal, context.Cause(ctx), "killed before it started")
	}
	if gone != nil {
		return gone
	}
	return copyFault(err, "the files of the project cannot be copied to its container")
}

// wire is what the job says of its files.
func (c *copies) wire() *initproto.Files {
	if c == nil {
		return nil
	}
	return &initproto.Files{Bytes: c.bounds.Bytes, Entries: c.bounds.Entries}
}

// begin receives what the job has changed. Its processes are dead: from here on the transfer has a
// guard of its own. What a killed job has changed comes back, too. But when the exec is killed in
// the middle of the transfer, because it fills the disk for instance, the rest is dropped.
func (c *copies) begin(s *session, endJob func() (removing bool)) error {
	if endJob() {
		return errors.New("the container is being removed")
	}
	c.late = newPatience()
	c.stop = s.guardUntil(context.Background(), c.late.timer)
	r, w := io.Pipe()
	c.back, c.ignore = w, func() bool { return true }
	if c.ctx.Err() == nil {
		c.ignore = context.AfterFunc(c.ctx, func() { w.CloseWithError(context.Cause(c.ctx)) })
	}
	c.received.Go(func() {
		c.report, c.err = transfer.Receive(r, c.dirs, c.bounds, c.owner)
		r.Close() // the rest is dropped
	})
	return nil
}

// take takes a chunk of what the job has changed. endJob ends the guard of the job.
func (c *copies) take(s *session, chunk []byte, endJob func() (removing bool)) error {
	switch {
	case c == nil || !c.isSent || (c.back == nil) != (len(chunk) == 0):
		return initproto.ErrProtocol
	case c.back == nil:
		return c.begin(s, endJob)
	}
	const overhead = 16 << 10 // of an entry
	if c.taken += int64(len(chunk)); c.taken-c.bounds.Bytes > overhead*int64(min(c.bounds.Entries, math.MaxInt32)) {
		return initproto.ErrProtocol
	}
	c.late.extend(len(chunk))
	_, _ = c.back.Write(chunk) // an error has ended Receive, which says it
	return nil
}

// finish completes the exit of a job.
func (c *copies) finish(exit *Exit) {
	if c == nil || c.back == nil && exit.StartError != "" { // nothing ran
		return
	}
	if c.back == nil {
		exit.Lost = fault.New(fault.Internal, "the sandbox-init in the image has not sent what the job changed: rebuild the image")
		return
	}
	c.back.Close()
	c.received.Wait()
	if killed := !c.ignore(); killed && c.err != nil {
		c.err = context.Cause(c.ctx)
	}
	if c.err != nil {
		exit.Lost = copyFault(c.err, "what the job changed cannot be copied back")
	}
	if left := c.sent.LeftOut; left > 0 {
		exit.addNote(fmt.Sprintf("%d files of the project, such as %q, were not copied to the container: they are sockets, FIFOs "+
			"or devices, cannot be read, or are more than 128 directories deep", left, c.sent.First))
	}
	if left := c.report.LeftOut; left > 0 {
		exit.addNote(fmt.Sprintf("%d files of the job, such as %q, were not copied back: they are sockets, FIFOs or devices, "+
			"are more than 128 directories deep, or another exec has put something else in their place", left, c.report.First))
	}
}

// copyFault converts an error of a transfer to a *fault.Error, which it may be already: about the
// project.
func copyFault(err error, what string) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, transfer.ErrTooLarge):
		return fault.Wrap(fault.TreeTooLarge, err, "%s (%v): remove files, or give core-api and the containers a shared volume by "+
			"sandbox.kubernetes.volume_claim", what, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(fault.DiskFull, err, "%s: the workspace's disk has no room: free some space or inodes", what)
	}
	return fault.Wrap(fault.Internal, err, "%s: %v", what, err)
}

// patience is how long a transfer may take: a while, and a second for each MiB that has passed.
type patience struct {
	timer *time.Timer
	until time.Time
}

const (
	transferTimeout = 2 * time.Minute // a container looks through a million files meanwhile
	transferPace    = time.Second / (1 << 20)
)

func newPatience() *patience {
	return &patience{timer: time.NewTimer(transferTimeout), until: time.Now().Add(transferTimeout)}
}

// extend extends the time for bytes that have passed.
func (p *patience) extend(bytes int) {
	p.until = p.until.Add(time.Duration(bytes) * transferPace)
	p.timer.Reset(time.Until(p.until))
}
