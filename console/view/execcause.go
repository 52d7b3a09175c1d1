package view

import (
	"slices"
	"strings"

	"secbox/audit"
	"secbox/policy"
)

// causeWords say why an exec did not succeed, for every reason.
var causeWords = map[audit.Reason]string{
	audit.NonzeroExit:       "The command ended by itself, with an exit code other than 0.",
	audit.ReasonTimeout:     "The command was killed because its time was over.",
	audit.OOM:               "The kernel killed the command at its memory limit.",
	audit.PIDsLimit:         "The command could start no further process or thread.",
	audit.BusError:          "The command ended by SIGBUS: /tmp or /dev/shm was full, or a file that it had mapped was cut.",
	audit.DiskLimit:         "The command was killed because it filled the disk.",
	audit.ReasonCanceled:    "A request ended it.",
	audit.PolicyDenied:      "The request asked for more than the policy allows.",
	audit.RefusalsOmitted:   "This row counts refused requests of one token that have no rows of their own.",
	audit.InputRefused:      "An input conflicts with an existing file, or with one in use.",
	audit.Forbidden:         "The token may not use this project, agent or user.",
	audit.PathRefused:       "An argument leads out of the directory to which the command is restricted.",
	audit.ImageMissing:      "The engine does not have the image.",
	audit.InvalidOutput:     "The skill succeeded, but its output does not match its manifest.",
	audit.EngineUnavailable: "The container engine did not answer.",
	audit.StartFailed:       "The container or the command could not be started.",
	audit.ContainerLost:     "The container vanished while the command ran: it was ended from outside.",
	audit.ArtifactsLost:     "The command ended, but its artifacts could not be collected.",
	audit.NodeLost:          "The node that ran it ended, so the outcome is not known.",
	audit.ShuttingDown:      "The node was shutting down.",
	audit.QueueTimeout:      "It waited too long for its turn, and never ran.",
	audit.TokenRevoked:      "Its token was revoked while it waited, and it never ran.",
	audit.SessionIdle:       "The session had no exec for its idle time.",
	audit.SessionExpired:    "The session reached the end of its time.",
	audit.SessionEnded:      "Its session ended while it ran.",
	audit.InternalError:     "The service failed, not the command; the log of the node has the reason.",
	audit.RunnerOffline:     "The user’s machine was not connected.",
	audit.RunnerRefused:     "The user’s machine does not allow it.",
	audit.OutcomeUnknown:    "It may have run; the outcome is not known.",
}

// limitsBehind are the fields of the policy whose limits end execs for a reason.
var limitsBehind = map[audit.Reason][]string{
	audit.ReasonTimeout: {policy.FieldTimeoutMS},
	audit.OOM:           {policy.FieldMemoryMB},
	audit.PIDsLimit:     {policy.FieldPIDs},
	audit.BusError:      {policy.FieldShmMB, policy.FieldTmpMB},
}

// Raise is a limit that a caller can raise.
type Raise struct {
	Field, Now, Ceiling string // values as a policy has them
}

// key is the name of the field in a request, or in the settings if only an operator can raise it.
func (r Raise) key() string {
	if r.atCeiling() {
		return "sandbox.policy_ceiling." + r.Field
	}
	return "policy_overrides." + r.Field
}

func (r Raise) atCeiling() bool { return r.Now == r.Ceiling }

// raises returns the limits that ended an exec, or a part of it. Commands in sandboxes have none:
// their requests have no policy.
func raises(rec audit.Record) []Raise {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	if err != nil || len(snapshot.NotEnforced) > 0 || neverRan(rec) {
		return nil
	}
	names := slices.Clone(limitsBehind[rec.ErrorReason])
	if rec.OOMEvents > 0 && !slices.Contains(names, policy.FieldMemoryMB) {
		names = append(names, policy.FieldMemoryMB)
	}
	if rec.ErrorReason == audit.BusError && snapshot.Values.ShmMB >= snapshot.Values.MemoryMB { // then /dev/shm is never full
		names = slices.DeleteFunc(names, func(name string) bool { return name == policy.FieldShmMB })
	}
	if strings.Contains(rec.Detail, policy.FieldMaxArtifacts) {
		names = append(names, policy.FieldMaxArtifacts)
	}
	var out []Raise
	for _, name := range names {
		f := snapshot.Fields[name]
		out = append(out, Raise{Field: name, Now: plain(f.Value), Ceiling: plain(f.Ceiling)})
	}
	return out
}
