package runner

import (
	"context"
	"errors"
	"fmt"

	"secbox/audit"
	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/runner/lifecycle"
	"secbox/runner/output"
	"secbox/runner/session"
)

// setOutcome completes the record of a job that has ended.
func (x *exec) setOutcome(exit engine.Exit, runErr error, c *output.Capture) {
	record := &x.record
	if runErr != nil {
		record.Status, record.ErrorReason, record.Detail = verdictOnLoss(x.ctx, runErr)
		exit.StdoutBytes, exit.StderrBytes = c.Stdout.Seen(), c.Stderr.Seen()
	} else {
		if x.req.session == nil { // which has no command
			record.ExitCode = &exit.Code
		}
		if exit.StartError == "" && x.req.session == nil && x.req.Command.Context == "" { // else it is not known
			record.CPUUS, record.MaxRSSBytes = new((exit.UserCPU + exit.SystemCPU).Microseconds()), new(exit.MaxRSSBytes)
		}
		record.Status, record.ErrorReason, record.Detail = x.verdict(exit)
		if exit.Note != "" {
			record.Detail = join(record.Detail, exit.Note)
		}
	}
	record.OOMEvents = exit.OOMKills
	record.StdoutBytes, record.StderrBytes = max(exit.StdoutBytes, c.Stdout.Seen()), max(exit.StderrBytes, c.Stderr.Seen())
	record.StdoutTruncated, record.StderrTruncated = c.Stdout.End(exit.StdoutBytes), c.Stderr.End(exit.StderrBytes)
	if err := c.Failed(); err != nil {
		x.cfg.Logger.Error("output could not be kept", "exec", record.ExecID, "error", err)
		record.Detail = join(record.Detail, "the state dir could not keep all output: "+fault.From(stateDirError(err)).Message)
	}
}

// verdict judges an exit that init reported. The order matters: the reason for a kill comes before
// the exit code.
func (x *exec) verdict(exit engine.Exit) (audit.Status, audit.Reason, string) {
	v := x.snapshot.Values
	switch {
	case exit.TimedOut && exit.Signal == 2 && x.req.Command.Context != "":
		return audit.Timeout, audit.ReasonTimeout, fmt.Sprintf("interrupted, kill_grace_ms=%d before timeout_ms=%d; raise %s",
			min(v.KillGraceMS, v.TimeoutMS/2), v.TimeoutMS, x.raise("timeout_ms"))
	case exit.TimedOut && exit.Signal != 9:
		return audit.Timeout, audit.ReasonTimeout, fmt.Sprintf("ended after its SIGTERM, kill_grace_ms=%d before timeout_ms=%d; raise %s",
			min(v.KillGraceMS, v.TimeoutMS/2), v.TimeoutMS, x.raise("timeout_ms"))
	case exit.TimedOut:
		return audit.Timeout, audit.ReasonTimeout, fmt.Sprintf("killed after timeout_ms=%d; raise %s", v.TimeoutMS, x.raise("timeout_ms"))
	case exit.Killed:
		return verdictOnKill(x.ctx)
	case exit.StartError != "":
		return audit.Failed, audit.StartFailed, "the command could not be started: " + exit.StartError
	case exit.Signal == 9 && exit.OOMKills > 0:
		return audit.OOMKilled, audit.OOM, fmt.Sprintf("the main process was killed for memory at memory_mb=%d; raise %s",
			v.MemoryMB, x.raise(policy.FieldMemoryMB))
	case exit.Code == 0:
		detail := ""
		if exit.OOMKills > 0 {
			detail = fmt.Sprintf("%d of its processes were killed for memory at memory_mb=%d", exit.OOMKills, v.MemoryMB)
		}
		if exit.PIDsMax > 0 {
			detail = join(detail, x.forksRefused(exit))
		}
		return audit.Succeeded, "", detail
	case exit.PIDsMax > 0:
		return audit.Failed, audit.PIDsLimit, x.forksRefused(exit)
	case exit.Code == busError:
		if v.ShmMB >= v.MemoryMB { // memory_mb is the limit of /dev/shm, which is never full
			return audit.Failed, audit.BusError,
				fmt.Sprintf("ended by SIGBUS: /tmp was full at tmp_mb=%d, or a file that it had mapped was cut; raise %s", v.TmpMB,
					x.raise(policy.FieldTmpMB))
		}
		return audit.Failed, audit.BusError, fmt.Sprintf("ended by SIGBUS: /dev/shm was full at shm_mb=%d, or /tmp at tmp_mb=%d, or a "+
			"file that it had mapped was cut; raise %s or %s",
			v.ShmMB, v.TmpMB, x.raise(policy.FieldShmMB), x.raise(policy.FieldTmpMB))
	default:
		detail := fmt.Sprintf("exit code %d", exit.Code)
		if exit.Signal != 0 {
			detail = fmt.Sprintf("ended by signal %d", exit.Signal)
		}
		if exit.OOMKills > 0 {
			detail += fmt.Sprintf("; %d of its processes were killed for memory at memory_mb=%d; raise %s",
				exit.OOMKills, v.MemoryMB, x.raise(policy.FieldMemoryMB))
		}
		return audit.Failed, audit.NonzeroExit, detail
	}
}

// busError is the exit code of a job that SIGBUS has ended, and of a shell whose last command it
// has ended.
const busError = 128 + 7

func (x *exec) forksRefused(exit engine.Exit) string {
	return fmt.Sprintf("%d forks were refused at pids=%d; raise %s", exit.PIDsMax, x.snapshot.Values.PIDs, x.raise("pids"))
}

// raise names a field and its ceiling, for messages that end in "raise …".
func (x *exec) raise(field string) string {
	if f := x.snapshot.Fields[field]; x.req.SessionID != "" && (f.CeilingFrom != policy.CeilingSession || f.Value == f.Ceiling) {
		return fmt.Sprintf("policy_overrides.%s of the session", field)
	}
	return fmt.Sprintf("policy_overrides.%s (ceiling %v)", field, x.snapshot.Fields[field].Ceiling)
}

// verdictOnKill is for a job that was killed because its context ended.
func verdictOnKill(ctx context.Context) (audit.Status, audit.Reason, string) {
	var disk *diskwatch.Exceeded
	if errors.As(context.Cause(ctx), &disk) {
		return audit.Failed, audit.DiskLimit, disk.Error()
	}
	if errors.Is(context.Cause(ctx), errExpired) {
		return audit.Canceled, audit.QueueTimeout, errExpired.Error()
	}
	if errors.Is(context.Cause(ctx), session.ErrIdle) {
		return audit.Canceled, audit.SessionIdle, session.ErrIdle.Error()
	}
	if errors.Is(context.Cause(ctx), session.ErrExpired) {
		return audit.Canceled, audit.SessionExpired, session.ErrExpired.Error()
	}
	if errors.Is(context.Cause(ctx), errRevoked) {
		return audit.Canceled, audit.TokenRevoked, errRevoked.Error()
	}
	return lifecycle.Killed(ctx)
}

// errRevoked is why an asynchronous exec whose token was revoked does not run.
var errRevoked = errors.New("canceled because its token was revoked")

// errExpired is why an asynchronous exec that waited too long is killed.
var errExpired = errors.New("canceled because it waited longer than queue_timeout_ms")

// verdictOnLoss is for a job that was started and whose exit is unknown.
func verdictOnLoss(ctx context.Context, err error) (audit.Status, audit.Reason, string) {
	if ctx.Err() != nil { // it was killed, and init could not report it
		return verdictOnKill(ctx)
	}
	if fault.Is(err, fault.EngineUnavailable) {
		return audit.Errored, audit.EngineUnavailable, fault.From(err).Message
	}
	if fault.Is(err, fault.SessionEnded) {
		return audit.Errored, audit.SessionEnded, fault.From(err).Message
	}
	return audit.Errored, audit.ContainerLost, fault.From(err).Message
}

// verdictOnStart is for a job that certainly did not run.
func verdictOnStart(ctx context.Context, err error) (audit.Status, audit.Reason, string) {
	if ctx.Err() != nil {
		status, reason, detail := verdictOnKill(ctx)
		if status == audit.Lost {
			return audit.Canceled, reason, "canceled because the node had lost its lease before it started"
		}
		return status, reason, detail + " before it started"
	}
	e := fault.From(err)
	switch e.Code {
	case fault.EngineUnavailable:
		return audit.Errored, audit.EngineUnavailable, e.Message
	case fault.ImageMissing:
		return audit.Errored, audit.ImageMissing, e.Message
	case fault.SessionEnded:
		return audit.Errored, audit.SessionEnded, e.Message
	case fault.InputInUse, fault.InputConflict, fault.InvalidRequest:
		return audit.Rejected, audit.InputRefused, e.Message
	case fault.PolicyDenied:
		return audit.Rejected, audit.PolicyDenied, e.Message
	default:
		return audit.Errored, audit.StartFailed, e.Message
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
