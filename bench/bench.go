package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// part measures one section with a server that may serve several of them.
type part struct {
	section string
	measure func(context.Context, *execs) error
}

// Run measures. It always returns a report of what it measured; the error joins what could not be measured and every plan that is not
// what was promised. Containers, processes and files are gone when it returns, also when ctx ended.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp(o.Dir, "secbox-bench-")
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	info, err := o.Docker.Info(ctx)
	if err != nil {
		return Report{}, err
	}
	begun := time.Now()
	report = Report{Command: o.Command, Begun: begun.UTC().Truncate(time.Second), Machine: machine(info)}
	defer func() { report.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds() }()

	var errs []error
	section := func(name string, measure func(context.Context) error) {
		if !o.wants(name) || ctx.Err() != nil {
			return
		}
		limited, cancel := context.WithTimeoutCause(ctx, o.TimeLimit, errTimeLimit)
		defer cancel()
		if err := measure(limited); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	// Each group of sections has a server of its own, so that no section finds the pool as another left it.
	served := func(name string, environ []string, parts ...part) {
		wanted := false
		for _, p := range parts {
			wanted = wanted || o.wants(p.section)
		}
		if !wanted || ctx.Err() != nil {
			return
		}
		if err := withExecs(ctx, o, filepath.Join(dir, name), environ, func(x *execs) {
			for _, p := range parts {
				section(p.section, func(ctx context.Context) error { return p.measure(ctx, x) })
			}
		}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	served("cold", []string{poolMax + "=0"},
		part{Cold, func(ctx context.Context, x *execs) (err error) { report.Cold, err = x.cold(ctx); return err }},
		part{ColdThroughput, func(ctx context.Context, x *execs) (err error) {
			report.ColdThroughput, err = x.throughput(ctx)
			return err
		}},
		part{Output, func(ctx context.Context, x *execs) (err error) { report.Output, err = x.output(ctx); return err }})
	served(Warm, nil,
		part{Warm, func(ctx context.Context, x *execs) (err error) { report.Warm, err = x.warm(ctx); return err }})
	served(Uneven, nil,
		part{Uneven, func(ctx context.Context, x *execs) (err error) { report.Uneven, err = x.uneven(ctx); return err }})
	closed := func(ctx context.Context, x *execs) error {
		rates, err := x.closed(ctx)
		report.Closed = append(report.Closed, rates...)
		return err
	}
	served(Closed, []string{o.limit(o.ClosedAt...)}, part{Closed, func(ctx context.Context, x *execs) error {
		report.NoCrun = x.without(ctx, crun, info)
		return closed(ctx, x)
	}})
	if report.NoCrun == "" {
		served(Closed+"-"+crun, []string{o.limit(o.ClosedAt...), runtimeSetting + "=" + crun}, part{Closed, closed})
	}
	served(Burst, []string{o.limit(o.Burst)},
		part{Burst, func(ctx context.Context, x *execs) (err error) { report.Burst, err = x.burst(ctx); return err }})
	served(Memory, nil,
		part{Memory, func(ctx context.Context, x *execs) (err error) { report.Memory, err = x.memory(ctx); return err }})
	if o.wants(Skills) && ctx.Err() == nil {
		few, many := filepath.Join(dir, "few"), filepath.Join(dir, "many")
		if err := errors.Join(putSkills(few, 1), putSkills(many, o.Skills)); err != nil {
			return report, err
		}
		served(Skills, []string{skillsSetting + "=" + few},
			part{Skills, func(ctx context.Context, x *execs) (err error) { report.Skills, err = x.invokes(ctx); return err }})
		served(Skills+"-many", []string{skillsSetting + "=" + many},
			part{Skills, func(ctx context.Context, x *execs) (err error) {
				report.Catalog, err = x.catalog(ctx, many)
				return err
			}})
	}
	section(Packages, func(ctx context.Context) (err error) {
		report.Packages, err = measurePackages(ctx, o, filepath.Join(dir, Packages))
		return err
	})
	section(Sandboxes, func(ctx context.Context) (err error) {
		report.Sandboxes, err = measureSandboxes(ctx, o, filepath.Join(dir, Sandboxes))
		return err
	})
	section(Lists, func(ctx context.Context) (err error) {
		report.Lists, err = lists(ctx, o, filepath.Join(dir, "lists"))
		return err
	})
	report.Targets = targets(report)
	if cause := context.Cause(ctx); cause != nil {
		errs = append(errs, cause)
	}
	return report, errors.Join(errs...)
}
