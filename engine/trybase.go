package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"secbox/dockercli"
	"secbox/fault"
)

// tryBase lets containers wait for any project if one shows that it sees attached directories; until then, and otherwise, they wait for their
// project. It returns false when the pool is closed.
func (p *Pool) tryBase() bool {
	for {
		err := p.seesAttached(p.ctx)
		switch {
		case p.ctx.Err() != nil:
			return false
		case err == nil:
			p.becomeAny()
			close(p.decided)
			return true
		case fault.Is(err, fault.EngineUnavailable), fault.Is(err, fault.ImageMissing):
			p.notShared("not known yet: " + fault.From(err).Message)
		default:
			p.cfg.Log.Warn("each container that waits serves one project only: directories cannot be attached to a container that runs", "error", err)
			p.notShared(whyUnseen(err))
			close(p.decided)
			return true
		}
		select { // the engine is away, or the image is yet to be made
		case <-p.ctx.Done():
			return false
		case <-time.After(tick):
		}
	}
}

// errUnseen is the failure of an engine that does not get the mounts of this process.
var errUnseen = errors.New("the engine does not see the mounts of this machine: it runs in another mount namespace, rootless, or on another machine, " +
	"such as that of Docker Desktop; use an engine that runs as root on this machine")

// whyUnseen describes the failure of seesAttached for a user.
func whyUnseen(err error) string {
	if docker, ok := errors.AsType[*dockercli.Error](err); ok && docker.Kind == dockercli.BadMount {
		err = errUnseen
	}
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return ours.Message
	}
	return err.Error()
}

// notShared notes why containers do not wait for any project.
func (p *Pool) notShared(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.NotShared = reason
}

// becomeAny replaces containers for their project by ones for any.
func (p *Pool) becomeAny() {
	p.mu.Lock()
	given := p.dropWhere(func(*bucket, *pooled) bool { return true })
	p.stats.Dropped.Stale += int64(len(given))
	clear(p.buckets)
	p.any, p.stats.NotShared = true, ""
	p.mu.Unlock()
	giveUp(given)
	spec, err := p.cfg.Default(p.ctx)
	if err != nil {
		return // the image has just gone
	}
	p.mu.Lock()
	p.stats.Ready = min(p.cfg.Ready, p.max)
	p.bucket(spec).ready = p.stats.Ready
	p.mu.Unlock()
}

// seesAttached starts a container, attaches a directory, and runs a job that makes a directory in it.
func (p *Pool) seesAttached(ctx context.Context) (err error) {
	spec, err := p.cfg.Default(ctx)
	if err != nil {
		return err
	}
	dir, err := p.cfg.Base.TempDir()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(filepath.Join(dir, "made")); _ = os.Remove(dir) }()
	uid, _, _ := strings.Cut(spec.User, ":")
	if n, err := strconv.Atoi(uid); err != nil || os.Chown(dir, n, -1) != nil {
		return fmt.Errorf("the user %q must be a number", spec.User)
	}
	died := make(chan error, 1)
	container, err := p.cold.StartStandby(ctx, spec, p.cfg.Base, standbyEvents{ready: func() {}, died: func(err error) { died <- err }})
	if err != nil {
		return err
	}
	<-container.greeted
	if !container.take() {
		return <-died
	}
	err = container.adopt(allocation{engine: p.cold, execID: container.execID, mounts: MountSet{
		Mounts: []Mount{{Source: dir, Target: workspaceTarget + "/work"}},
		Open: func() ([]*os.File, error) {
			f, err := os.Open(dir)
			return []*os.File{f}, err
		},
	}, args: container.args})
	if err != nil {
		container.Discard()
		return err
	}
	// init makes the directory that the job starts in.
	exit, err := container.Run(ctx, Job{Argv: []string{InitPath}, Cwd: workspaceTarget + "/work/made", Timeout: 10 * time.Second}, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, "made")); err != nil {
		return fmt.Errorf("%w (%s)", errUnseen, exit.StartError)
	}
	return nil
}
