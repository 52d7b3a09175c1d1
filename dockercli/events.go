package dockercli

import (
	"bufio"
	"context"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"secbox/fault"
)

// eventsSince is how far back a new stream of events begins, so that nothing is missed between the start of the CLI and the moment at
// which the engine listens to it, also when the engine's clock is behind ours by less than that. What is told twice does no harm.
const eventsSince = "1m"

// FollowImages calls changed whenever an image of the engine was tagged, built, loaded, imported, pulled or removed, or a volume was
// removed, until ctx ends or the stream of events does; the error says why. started is called once, as soon as the CLI runs; an event
// after that is not missed. Both are called from this goroutine. No process is left when it returns, nor, on Linux, when this process is killed.
func (c *CLI) FollowImages(ctx context.Context, started, changed func()) error {
	// The process dies with the thread that started it (killWithParent), so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.path, "events", "--since", eventsSince, "--filter", "type=image", "--filter", "type=volume",
		"--format", "{{.Type}} {{.Action}}")
	cmd.Env = c.env
	cmd.WaitDelay = 2 * time.Second
	setOwnGroup(cmd)
	killWithParent(cmd)
	var stderr bounded
	stderr.limit = maxStderr
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "no pipe for the docker CLI")
	}
	// A docker that is a script may have a child, which must neither stay nor keep the pipe open.
	cmd.Cancel = func() error {
		err := killGroup(cmd)
		_ = stdout.Close()
		return err
	}
	if err := cmd.Start(); err != nil {
		return fault.Wrap(fault.EngineUnavailable, err, "the docker CLI at %s could not be started", c.path)
	}
	started()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if changesImage(lines.Text()) {
			changed()
		}
	}
	if ctx.Err() == nil {
		_ = killGroup(cmd) // its output has ended or cannot be read: it is of no use any more
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case lines.Err() != nil:
		return fault.Wrap(fault.EngineUnavailable, lines.Err(), "the Docker engine's stream of events cannot be read")
	case err != nil:
		return interpret("events", stderr.String(), err)
	default:
		return fault.New(fault.EngineUnavailable, "the Docker engine ended its stream of events")
	}
}

// changesImage reads a line of ours ("image tag"). Everything that happens to an image counts, unless it is known to change nothing; of
// volumes only their end, since containers mount and unmount them all the time.
func changesImage(event string) bool {
	kind, action, _ := strings.Cut(event, " ")
	switch kind {
	case "image":
		return action != "save" && action != "push"
	case "volume":
		return action == "destroy"
	default:
		return false
	}
}
