package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/sandbox"
)

// verdict reads the result of a command.
func verdict(res *sandbox.ExecResult, s policy.Snapshot) (audit.Status, audit.Reason, string) {
	detail := func(otherwise string) string {
		if res.Detail != "" {
			return res.Detail
		}
		return otherwise
	}
	switch {
	case res.TimedOut:
		return audit.Timeout, audit.ReasonTimeout, fmt.Sprintf("killed after timeout_ms=%d", s.Values.TimeoutMS)
	case res.Canceled:
		return audit.Canceled, audit.ReasonCanceled, detail("killed because nobody waited for it any more")
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

// killedCode is the exit code of a command that SIGKILL ended, as an exec's row has it.
const killedCode = 128 + 9

// exitCode is nil when it is not known how the command ended.
func exitCode(res *sandbox.ExecResult) *int {
	code := res.ExitCode
	switch {
	case res.TimedOut, res.Canceled:
		code = killedCode
	case code < 0:
		return nil
	}
	return &code
}

// verdictOnError tells why a command has no result. What is not known comes before who killed it, and both before how it looks.
func verdictOnError(ctx context.Context, err error) (audit.Status, audit.Reason, string) {
	message := fault.From(err).Message
	var path *fs.PathError
	if errors.As(err, &path) { // of the directory that it was to start in
		message = fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	if fault.Is(err, fault.OutcomeUnknown) {
		return audit.Lost, audit.OutcomeUnknown, message
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errShutdown):
			return audit.Canceled, audit.ShuttingDown, "killed because core-api was shutting down"
		case errors.Is(cause, errCanceled):
			return audit.Canceled, audit.ReasonCanceled, "canceled by request"
		default:
			return audit.Canceled, audit.ReasonCanceled, "canceled because its caller gave up"
		}
	}
	if fault.Is(err, fault.ShuttingDown) { // the user's sandbox alone: that this node ends is said through ctx, and nothing begins after it
		return audit.Canceled, audit.ReasonCanceled, "canceled because the user's sandbox was closed, as when they are put to work elsewhere"
	}
	if path != nil {
		return audit.Rejected, audit.InputRefused, message
	}
	switch fault.CodeOf(err) {
	case fault.InvalidRequest, fault.PathRefused, fault.Unsupported:
		return audit.Rejected, audit.InputRefused, message
	case fault.PolicyDenied:
		return audit.Rejected, audit.PolicyDenied, message
	case fault.EngineUnavailable:
		return audit.Errored, audit.EngineUnavailable, message
	case fault.ImageMissing:
		return audit.Errored, audit.ImageMissing, message
	case fault.RunnerOffline:
		return audit.Errored, audit.RunnerOffline, message
	case fault.RunnerRefused:
		return audit.Errored, audit.RunnerRefused, message
	case fault.Internal:
		return audit.Errored, audit.InternalError, message
	default:
		return audit.Errored, audit.StartFailed, message
	}
}

// neverBegan reports whether the command certainly did not start. A row that says engine_unavailable leaves it open.
func neverBegan(r audit.Record) bool {
	switch r.ErrorReason {
	case audit.RunnerOffline, audit.RunnerRefused, audit.ImageMissing, audit.StartFailed:
		return true
	}
	return r.Status == audit.Rejected
}

// withID says under which id a refusal is on record. An error that says more than a fault does, of a file or of a context, stays as it is.
func withID(err error, execID string) error {
	e, ok := err.(*fault.Error) //nolint:errorlint // only the outermost can be replaced without losing what is around it
	if !ok {
		return err
	}
	copied := *e
	copied.ExecID = execID
	return &copied
}
