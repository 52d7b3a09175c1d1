package lifecycle

import (
	"cmp"

	"secbox/audit"
	"secbox/fault"
	"secbox/internal/traces"
)

// EndSpan ends the span of a command with its ids, its status and its sizes. A span has nothing
// that a client has sent or a job has written, except for ids: no arguments, no environment, no
// output, no names of files. err is the error of a command that did not run; its record may be
// empty.
func EndSpan(span traces.Span, r audit.Record, err error) {
	if !span.Recording() {
		span.End("")
		return
	}
	reason := string(fault.CodeOf(err))
	if r.Status != "" && r.Status != audit.Succeeded && r.Status != audit.Queued {
		reason = cmp.Or(reason, string(r.ErrorReason), string(r.Status))
	}
	if err != nil {
		r.ExecID = cmp.Or(r.ExecID, fault.From(err).ExecID)
	}
	for name, id := range map[string]string{
		"secbox.exec.id": r.ExecID, "secbox.exec.kind": string(r.Kind), "secbox.project.id": r.ProjectID, "secbox.task.id": r.TaskID,
		"secbox.conversation.id": r.ConversationID, "secbox.agent.id": r.AgentID,
		"secbox.user.id": r.UserID, "secbox.skill.id": r.SkillID, "secbox.token.id": r.RequestedBy, "secbox.replay_of": r.ReplayOf,
		"secbox.backend": r.Backend, "secbox.runner": r.Runner,
		"secbox.exec.status": string(r.Status), "secbox.exec.reason": string(r.ErrorReason), "container.image.name": r.Image,
		"container.image.id": r.ImageID,
	} {
		if id != "" {
			span.Set(traces.Text(name, id))
		}
	}
	if r.ExitCode != nil {
		span.Set(traces.Int("process.exit.code", int64(*r.ExitCode)))
	}
	if !r.StartedAt.IsZero() {
		span.Set(
			traces.Bool("secbox.exec.warm", r.Warm), traces.Bool("secbox.exec.attached", r.Attached),
			traces.Int("secbox.exec.duration_ms", r.DurationMS),
			traces.Int("secbox.stdout.bytes", r.StdoutBytes), traces.Int("secbox.stderr.bytes", r.StderrBytes),
			traces.Int("secbox.artifacts.bytes", r.ArtifactsBytes),
			traces.Int("secbox.stdin.bytes", r.StdinBytes), traces.Int("secbox.inputs.count", int64(len(r.Inputs))),
			traces.Int("secbox.oom_events", r.OOMEvents),
		)
	}
	span.End(reason)
}
