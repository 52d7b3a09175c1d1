package dockercli

import (
	"bufio"
	"context"
	"runtime"
	"strings"

	"secbox/fault"
)

// eventsSince is how far back a new stream of events begins, so that no event is missed while the
// CLI starts, also when the engine's clock is behind ours by less than that. Repeated events do no
// harm.
const eventsSince = "1m"

// FollowImages calls changed whenever an image of the engine was tagged, built, loaded, imported,
// pulled or removed, or a volume was removed, until ctx or the stream of events ends; it always
// returns an error. started is called once, when the CLI runs; no later event is missed. Both are
// called from this goroutine. No process is left when it returns, nor, on Linux, when this process
// is killed.
func (c *CLI) FollowImages(ctx context.Context, started, changed func()) error {
	// The process dies with the thread that started it (killWithParent), so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, stderr := c.command(ctx, "events", "--since", eventsSince, "--filter", "type=image", "--filter", "type=volume",
		"--format", "{{.Type}} {{.Action}}")
	killWithParent(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "no pipe for the docker CLI")
	}
	// When docker is a script, its children must end, too, and not keep the pipe open.
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
		_ = killGroup(cmd) // its output has ended or cannot be read
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

// changesImage parses a line in our format ("image tag"). All actions on images count, unless they
// are known to change nothing; of volumes only their removal, since containers mount and unmount
// them all the time.
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
