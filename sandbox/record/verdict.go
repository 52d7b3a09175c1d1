package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/sandbox"
)

// verdict judges the result of a command.
func verdict(res *sandbox.ExecResult, s policy.Snapshot) (audit.Status, audit.Reason, string) {
	detail := func(otherwise string) string {
		if res.Detail != "" {
			return res.Detail
		}
		return otherwise
	}
	switch {
	case res.TimedOut && res.Ended != nil:
		return audit.Timeout, audit.ReasonTimeout, fmt.Sprintf("ended after its SIGTERM, before timeout_ms=%d", s.Values.TimeoutMS)
	case res.TimedOut:
		return audit.Timeout, audit.ReasonTimeout, fmt.Sprintf("killed after timeout_ms=%d", s.Values.TimeoutMS)
	case res.Canceled:
		return audit.Canceled, audit.ReasonCanceled, detail("killed because its caller left")
	case res.DiskLimit:
		return audit.Failed, audit.DiskLimit, detail("killed for its use of the disk")
	case res.OOMKilled:
		return audit.OOMKilled, audit.OOM, detail("killed for memory")
	case res.ExitCode == 0:
		return audit.Succeeded, "", res.Detail
	default:
		return audit.Failed, audit.NonzeroExit, detail(fmt.Sprintf("exit code %d", res.ExitCode))
	}
}

// killedCode is the exit code, in the row, of a command that SIGKILL ended.
const killedCode = 128 + 9

// exitCode is nil when the exit of the command is unknown.
func exitCode(res *sandbox.ExecResult) *int {
	code := res.ExitCode
	switch {
	case res.TimedOut && res.Ended != nil:
		code = *res.Ended
	case res.TimedOut, res.Canceled:
		code = killedCode
	case code < 0:
		return nil
	}
	return &code
}

// verdictOnError judges a command without a result. An unknown outcome comes before the reason for
// a kill, and that before the error.
func verdictOnError(ctx context.Context, err error) (audit.Status, audit.Reason, string) {
	message := fault.From(err).Message
	path, isPath := errors.AsType[*fs.PathError](err)
	if isPath { // of its working directory
		message = fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	if fault.Is(err, fault.OutcomeUnknown) {
		return audit.Lost, audit.OutcomeUnknown, message
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		if status, reason, detail := lifecycle.Killed(ctx); reason != "" {
			return status, reason, detail
		}
		return audit.Canceled, audit.ReasonCanceled, "canceled because its caller gave up"
	}
	if fault.Is(err, fault.ShuttingDown) { // of the user's sandbox only: when this node shuts down, ctx ends
		return audit.Canceled, audit.ReasonCanceled, "canceled because the user's sandbox was closed, as when the user is moved to " +
			"another backend, or the node that has the user's machine ends"
	}
	if isPath {
		return audit.Rejected, audit.InputRefused, message
	}
	switch fault.CodeOf(err) {
	case fault.InvalidRequest, fault.PathRefused, fault.Unsupported, fault.FileChanged:
		return audit.Rejected, audit.InputRefused, message
	case fault.PolicyDenied:
		return audit.Rejected, audit.PolicyDenied, message
	case fault.EngineUnavailable:
		return audit.Errored, audit.EngineUnavailable, message
	case fault.ImageMissing:
		return audit.Errored, audit.ImageMissing, message
	case fault.SessionEnded:
		return audit.Errored, audit.SessionEnded, message
	case fault.RunnerOffline:
		return audit.Errored, audit.RunnerOffline, message
	case fault.RunnerRefused:
		return audit.Errored, audit.RunnerRefused, message
	case fault.Internal, fault.UpstreamFailed: // it may have started
		return audit.Errored, audit.InternalError, message
	default:
		return audit.Errored, audit.StartFailed, message
	}
}

// neverStarted reports whether the command certainly did not start. It is false for
// engine_unavailable, which can happen later as well.
func neverStarted(r audit.Record) bool {
	switch r.ErrorReason {
	case audit.RunnerOffline, audit.RunnerRefused, audit.ImageMissing, audit.StartFailed:
		return true
	}
	return r.Status == audit.Rejected
}

// withID adds the id of the row to an error. Errors that wrap a fault, such as errors of files and
// contexts, stay as they are.
func withID(err error, execID string) error {
	e, ok := err.(*fault.Error) //nolint:errorlint // only the outermost error can be replaced without losing its wrappers
	if !ok {
		return err
	}
	copied := *e
	copied.ExecID = execID
	return &copied
}

// canceled reports whether Cancel ended the context.
func canceled(ctx context.Context) bool {
	_, reason, _ := lifecycle.Killed(ctx)
	return reason == audit.ReasonCanceled
}
