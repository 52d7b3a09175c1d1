// Package row is what both databases share: the columns of an audit record, their values on the way in and out, and the query of a
// list. It knows SQL that both understand ($1, RETURNING, ON CONFLICT), and neither driver.
package row

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// ColumnList are the columns of sandbox_execs in the order of Values and Scan: the JSON names of audit.Record.
const ColumnList = "exec_id, project_id, task_id, conversation_id, agent_id, user_id, skill_id, skill_digest, image, image_id, cmd, args, " +
	"cwd, env_keys, inputs, policy_snapshot, status, exit_code, error_reason, detail, created_at, started_at, " +
	"ended_at, duration_ms, artifacts_path, manifest_digest, stdout_truncated, stderr_truncated, stdout_bytes, " +
	"stderr_bytes, artifacts_bytes, oom_events, node_id, backend, runner, warm, requested_by, request_digest, " +
	"idempotency_key, settings_digest, large_lists"

// Columns is ColumnList as a list.
func Columns() []string { return strings.Split(ColumnList, ", ") }

// OnStart are the columns that Start sets, beside status; OnClose those that Close sets.
func OnStart() []string { return []string{"started_at", "node_id", "image_id", "warm", "detail"} }

// OnClose are the columns that can change after the opening. An idempotency key can only be given up.
func OnClose() []string {
	return []string{
		"image_id", "status", "exit_code", "error_reason", "detail", "started_at", "ended_at", "duration_ms", "artifacts_path",
		"manifest_digest", "stdout_truncated", "stderr_truncated", "stdout_bytes", "stderr_bytes", "artifacts_bytes", "oom_events",
		"node_id", "warm", keyColumn,
	}
}

const keyColumn = "idempotency_key"

// Stamp turns a time into what the driver stores; it is never given a zero time.
type Stamp func(time.Time) any

// Values are the values of a cleaned record in the order of Columns. JSON columns are strings.
func Values(r audit.Record, stamp Stamp) ([]any, error) {
	args, err := list(r.Args)
	if err != nil {
		return nil, err
	}
	envKeys, err := list(r.EnvKeys)
	if err != nil {
		return nil, err
	}
	inputs, err := list(r.Inputs)
	if err != nil {
		return nil, err
	}
	large := []byte("{}")
	if len(r.LargeLists) > 0 {
		if large, err = json.Marshal(r.LargeLists); err != nil {
			return nil, err
		}
	}
	snapshot := string(r.PolicySnapshot)
	if snapshot == "" {
		snapshot = "null"
	}
	var exitCode any
	if r.ExitCode != nil {
		exitCode = int64(*r.ExitCode)
	}
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return stamp(t)
	}
	return []any{
		r.ExecID, r.ProjectID, r.TaskID, r.ConversationID, r.AgentID, r.UserID, r.SkillID, r.SkillDigest, r.Image, r.ImageID, r.Cmd, args,
		r.Cwd, envKeys, inputs, snapshot, string(r.Status), exitCode, string(r.ErrorReason), r.Detail, at(r.CreatedAt), at(r.StartedAt),
		at(r.EndedAt), r.DurationMS, r.ArtifactsPath, r.ManifestDigest, r.StdoutTruncated, r.StderrTruncated, r.StdoutBytes,
		r.StderrBytes, r.ArtifactsBytes, r.OOMEvents, r.NodeID, r.Backend, r.Runner, r.Warm, r.RequestedBy, r.RequestDigest,
		r.IdempotencyKey, r.SettingsDigest, string(large),
	}, nil
}

// Pick are the values of some columns only, in the order of names.
func Pick(names []string, values []any) []any {
	columns := Columns()
	picked := make([]any, len(names))
	for i, name := range names {
		picked[i] = values[slices.Index(columns, name)]
	}
	return picked
}

// Assign is "a = $n, b = $n+1, …" for the SET of an UPDATE; a key is only ever emptied.
func Assign(names []string, n int) string {
	parts := make([]string, len(names))
	for i, name := range names {
		param := "$" + strconv.Itoa(n+i)
		if name == keyColumn {
			param = "CASE WHEN " + param + " = '' THEN '' ELSE " + keyColumn + " END"
		}
		parts[i] = name + " = " + param
	}
	return strings.Join(parts, ", ")
}

// Params is "$1, $2, … $n".
func Params(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, ", ")
}

// Scan reads one row with all Columns in their order.
func Scan(scan func(dest ...any) error) (audit.Record, error) {
	var r audit.Record
	var exitCode *int64
	err := scan(
		&r.ExecID, &r.ProjectID, &r.TaskID, &r.ConversationID, &r.AgentID, &r.UserID, &r.SkillID, &r.SkillDigest, &r.Image, &r.ImageID, &r.Cmd, jsonInto{&r.Args},
		&r.Cwd, jsonInto{&r.EnvKeys}, jsonInto{&r.Inputs}, jsonInto{&r.PolicySnapshot}, (*string)(&r.Status), &exitCode, (*string)(&r.ErrorReason), &r.Detail, timeInto{&r.CreatedAt}, timeInto{&r.StartedAt},
		timeInto{&r.EndedAt}, &r.DurationMS, &r.ArtifactsPath, &r.ManifestDigest, &r.StdoutTruncated, &r.StderrTruncated, &r.StdoutBytes,
		&r.StderrBytes, &r.ArtifactsBytes, &r.OOMEvents, &r.NodeID, &r.Backend, &r.Runner, &r.Warm, &r.RequestedBy, &r.RequestDigest,
		&r.IdempotencyKey, &r.SettingsDigest, jsonInto{&r.LargeLists},
	)
	if err != nil {
		return audit.Record{}, err
	}
	if len(r.LargeLists) == 0 {
		r.LargeLists = nil
	}
	if exitCode != nil {
		code := int(*exitCode)
		r.ExitCode = &code
	}
	if string(r.PolicySnapshot) == "null" {
		r.PolicySnapshot = nil
	}
	return r, nil
}

// ScanEvent reads one row of seq, exec_id, kind, at, node_id, data. The data comes back in the form of audit.Record, whichever
// database made the JSON.
func ScanEvent(scan func(dest ...any) error) (audit.Event, error) {
	var e audit.Event
	var stored audit.Record
	if err := scan(&e.Seq, &e.ExecID, (*string)(&e.Kind), timeInto{&e.At}, &e.NodeID, jsonInto{&stored}); err != nil {
		return audit.Event{}, err
	}
	data, err := json.Marshal(utc(stored))
	if err != nil {
		return audit.Event{}, err
	}
	e.Data = data
	return e, nil
}

// EventData is what an event of the record holds.
func EventData(r audit.Record) (string, error) {
	data, err := json.Marshal(r)
	return string(data), err
}

func utc(r audit.Record) audit.Record {
	r.CreatedAt, r.StartedAt, r.EndedAt = r.CreatedAt.UTC(), r.StartedAt.UTC(), r.EndedAt.UTC()
	return r
}

// OpeningEvents are the events of a record at its birth.
func OpeningEvents(s audit.Status) []string {
	switch {
	case s == audit.Running:
		return []string{string(audit.EventCreated), string(audit.EventStarted)}
	case s.Final():
		return []string{string(audit.EventCreated), string(audit.EventEnded)}
	}
	return []string{string(audit.EventCreated)}
}

// list is JSON of a list; a nil one is [].
func list[T any](values []T) (string, error) {
	if values == nil {
		return "[]", nil
	}
	data, err := json.Marshal(values)
	return string(data), err
}

// MaxKey is the longest key, in bytes, that a record may have in a column with an index: PostgreSQL refuses an index entry of more
// than 2,704 bytes, and two keys share one.
const MaxKey = 512

// Check refuses what must not get into a row; everything that comes from a request was checked long before, except its length.
func Check(r audit.Record) error {
	for _, key := range []struct{ field, value string }{
		{"exec_id", r.ExecID},
		{"project_id", r.ProjectID},
		{"task_id", r.TaskID},
		{"conversation_id", r.ConversationID},
		{"agent_id", r.AgentID},
		{"user_id", r.UserID},
		{"skill_id", r.SkillID},
		{"skill_digest", r.SkillDigest},
		{"node_id", r.NodeID},
		{"runner", r.Runner},
		{"requested_by", r.RequestedBy},
		{"idempotency_key", r.IdempotencyKey},
	} {
		if len(key.value) > MaxKey {
			return fault.BadField(key.field, "is longer than %d bytes", MaxKey)
		}
	}
	switch {
	case r.ExecID == "":
		return fault.Wrap(fault.Internal, fmt.Errorf("audit record without exec_id"), "the exec could not be recorded")
	case !r.Status.Valid():
		return fault.Wrap(fault.Internal, fmt.Errorf("audit record %s with status %q", r.ExecID, r.Status), "the exec could not be recorded")
	case r.CreatedAt.IsZero():
		return fault.Wrap(fault.Internal, fmt.Errorf("audit record %s without created_at", r.ExecID), "the exec could not be recorded")
	}
	return nil
}

// CheckEnding is Check for Close: the status must be final and the end known.
func CheckEnding(r audit.Record) error {
	if err := Check(r); err != nil {
		return err
	}
	if !r.Status.Final() || r.EndedAt.IsZero() {
		return fault.Wrap(fault.Internal, fmt.Errorf("audit record %s closed with status %q, ended_at %v", r.ExecID, r.Status, r.EndedAt),
			"the exec's end could not be recorded")
	}
	return nil
}

// LostDetail is the detail of a row that LoseOpen ended.
const LostDetail = "the node that ran this exec ended before the exec did; whether its command finished is not known"

// Lose ends an open record as lost at a time of the database's clock, which may be behind the clock that started it.
func Lose(r audit.Record, now time.Time) audit.Record {
	r.Status, r.ErrorReason, r.Detail = audit.Lost, audit.NodeLost, LostDetail
	r.EndedAt = now
	for _, t := range []time.Time{r.CreatedAt, r.StartedAt} {
		if r.EndedAt.Before(t) {
			r.EndedAt = t
		}
	}
	r.DurationMS = r.Duration().Milliseconds()
	return r
}
