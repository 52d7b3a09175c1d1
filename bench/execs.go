package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// The least that a section needs to say anything when its time limit ends it.
const (
	leastPairs  = 10
	leastRounds = 2
)

// commonProject is of the execs of sections that know no other. Sections that count what the pool misses have fresh ones, so that the first use
// of a project counts.
const commonProject = "bench"

// execs is a core-api and the plain side to compare it with.
type execs struct {
	Options
	server  *server
	plain   *plain
	pooled  bool
	runtime string // of the server's containers; empty: the engine's default
}

// withExecs starts both sides, warms them up, and takes them down after f. environ is settings of the server.
func withExecs(ctx context.Context, o Options, dir string, environ []string, f func(*execs)) (err error) {
	s, err := serve(ctx, o, filepath.Join(dir, "server"), environ...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	first, err := s.exec(ctx, commonProject, nothing)
	if err != nil {
		return because(ctx, err)
	}
	p := &plain{docker: o.Docker, environ: o.Environ, node: uuid.NewString(), dir: filepath.Join(dir, "plain")}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	flags, err := flagsOf(filepath.Join(s.dir, "workspace", first.ArtifactsDir))
	if err != nil {
		return err
	}
	var runtime string
	p.flags, runtime = withoutRuntime(flags)
	defer func() { err = errors.Join(err, p.clean()) }()
	before, err := s.pool(ctx)
	if err != nil {
		return because(ctx, err)
	}
	x := &execs{Options: o, server: s, plain: p, pooled: before.Max > 0, runtime: runtime}
	if _, err := x.alone(ctx); err != nil {
		return err
	}
	if _, err := x.plainTurn(ctx, nothing); err != nil {
		return err
	}
	f(x)
	return nil
}

func (x *execs) plainTurn(ctx context.Context, j job) (ran, error) {
	r, err := x.plain.next(j)
	if err != nil {
		return ran{}, err
	}
	return r.start(ctx, nil)
}

// severalPlain runs n containers of plain docker run, some at a time. What each needs beforehand is made before begun is called.
func (x *execs) severalPlain(ctx context.Context, n, concurrency int, begun func()) error {
	runs := make([]run, n)
	for i := range runs {
		var err error
		if runs[i], err = x.plain.next(nothing); err != nil {
			return err
		}
	}
	begun()
	return several(ctx, n, concurrency, func(ctx context.Context, i int) error {
		_, err := runs[i].start(ctx, nil)
		return err
	})
}

// several does n things, some at a time, and returns the first error, after which no more are begun.
func several(ctx context.Context, n, concurrency int, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					stop(fmt.Errorf("%d of %d: %w", i+1, n, err))
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
