package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"secbox/engine"
	"secbox/fault"
)

// CheckImage runs the probes in an image that no exec may use yet, all at once, and the command,
// whose output it returns. fault.ImageUnfit names the probes that failed; another error says why
// they could not run. Nothing is left of it.
func (d *Doctor) CheckImage(ctx context.Context, image engine.Image, command []string) (output string, err error) {
	defer func() { err = errors.Join(err, d.CleanUp()) }()
	if d.cfg.Workspace == nil {
		return "", errNoWorkspace
	}
	all := experiments(d.environment(ctx))
	list := shell("")
	list.argv = command
	list.limits.MemoryMB, list.limits.PIDs = 512, 256
	all = append(all, list)
	var (
		wait     sync.WaitGroup
		outcomes = make([]outcome, len(all))
	)
	outcomes[0] = d.run(ctx, all[0], image) // whether any job runs
	if why := unfit(all[:1], outcomes[:1]); why != nil {
		return "", why
	}
	for i, e := range all[1:] {
		wait.Go(func() { outcomes[i+1] = d.run(ctx, e, image) }) // the engine starts some at a time
	}
	wait.Wait()
	if ctx.Err() != nil {
		return "", fault.Wrap(fault.Internal, context.Cause(ctx), "the check of the image was interrupted")
	}
	if err := unfit(all, outcomes); err != nil {
		return "", err
	}
	listed := outcomes[len(all)-1]
	if why := listed.cannot(); why != "" {
		return "", fault.New(fault.ImageUnfit, "what is installed in the image cannot be listed: %s", why)
	}
	return listed.stdout, nil
}

// unfit returns an error that names the probes that failed.
func unfit(all []experiment, outcomes []outcome) error {
	var failed []string
	for i, e := range all {
		for _, p := range e.judge(outcomes[i]) {
			if !p.OK {
				failed = append(failed, p.Name+" ("+p.Seen+")")
			}
		}
		if err := outcomes[i].err; fault.Is(err, fault.EngineUnavailable) || fault.Is(err, fault.DiskFull) {
			return err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fault.New(fault.ImageUnfit, "the image fails %d of the doctor's probes: %s; the probes need bash, and python of version 3 or newer, "+
		"in the image; `core-api doctor` tells whether they hold in the sandbox image", len(failed),
		strings.Join(failed[:min(3, len(failed))], "; ")+more(len(failed)-3))
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("; and %d more", n)
}
