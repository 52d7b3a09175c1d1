package audit

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"secbox/fault"
)

// maxParam is the longest parameter of a filter, in bytes.
const maxParam = 255

// FilterParam is a parameter of ParseFilter.
type FilterParam struct{ Name, Meaning string }

// FilterParams are the parameters of ParseFilter, for command lines.
func FilterParams() []FilterParam {
	return []FilterParam{
		{"task_id", "only execs of this task"},
		{"project_id", "only execs of this project, or of this workspace <agentId>~<userId>"},
		{"conversation_id", "only execs of this conversation"},
		{"skill_id", "only execs of this skill"},
		{"skill_digest", "only execs of this version of a skill, by the digest of its files"},
		{"user_id", "only execs of this user"},
		{"agent_id", "only execs of this agent"},
		{"backend", "only commands that ran on this backend: docker, none or remote"},
		{"runner", "only commands that ran on users' machines with this name"},
		{"replay_of", "only execs that ran this exec again"},
		{"trace_id", "only execs of this distributed trace"},
		{"session_id", "only this session and the execs in it"},
		{"requested_by", "only execs that the token with this id requested"},
		{"error_reason", "only execs that failed for this reason"},
		{"exit_code_ne", "only execs with an exit code other than this one"},
		{"network", "used: only execs that asked for a connection; denied: only execs that were refused one"},
		{"status", "only execs with this status, or with one of several separated by commas"},
		{"kind", "exec (the default), change or all"},
		{"view", "full (the default) or summary, without args, env_keys, env_hmacs, inputs and policy_snapshot"},
		{"since", "only execs created at or after this time: RFC 3339, today (UTC), or a duration before now such as 90m, 24h or 7d"},
		{"until", "only execs created before this time: RFC 3339, or a duration before now"},
	}
}

// ParseFilter returns the filter that the parameters of a list or an export describe. get returns a
// parameter by its name, empty if it is absent. Parameters that are wrong go to bad.
func ParseFilter(get func(name string) string, now time.Time, bad *fault.Fields) Filter {
	label := func(name string) string {
		s := get(name)
		if !IsParam(s) {
			bad.Add(name, "must be at most %d bytes of UTF-8 without control characters", maxParam)
		}
		return s
	}
	f := Filter{
		TaskID: label("task_id"), ProjectID: label("project_id"), ConversationID: label("conversation_id"), SkillID: label("skill_id"),
		SkillDigest: label("skill_digest"),
		UserID:      label("user_id"), AgentID: label("agent_id"), Backend: label("backend"), Runner: label("runner"),
		ReplayOf:    label("replay_of"),
		TraceID:     strings.ToLower(get("trace_id")),
		SessionID:   label("session_id"),
		ErrorReason: Reason(label("error_reason")), RequestedBy: label("requested_by"),
		Since: ParseTime("since", get("since"), now, bad), Until: ParseTime("until", get("until"), now, bad),
	}
	if id, err := hex.DecodeString(f.TraceID); f.TraceID != "" && (err != nil || len(id) != 16) {
		bad.Add("trace_id", "must be 32 hexadecimal digits, the second part of a traceparent")
	}
	if list := get("status"); list != "" {
		for name := range strings.SplitSeq(list, ",") {
			status := Status(name)
			if !status.Valid() {
				bad.Add("status", "must be a comma-separated list of queued, running, succeeded, failed, timeout, oom_killed, canceled, "+
					"rejected, error, lost")
				break
			}
			if !slices.Contains(f.Statuses, status) {
				f.Statuses = append(f.Statuses, status)
			}
		}
	}
	if s := get("exit_code_ne"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			bad.Add("exit_code_ne", "must be a whole number from %d to %d", math.MinInt32, math.MaxInt32)
		}
		f.ExitCodeNot = new(int(n))
	}
	switch f.Network = NetworkUse(get("network")); f.Network {
	case "", NetworkUsed, NetworkDenied:
	default:
		bad.Add("network", "must be %s or %s", NetworkUsed, NetworkDenied)
	}
	switch kind := get("kind"); kind {
	case "":
		f.Kind = KindExec
	case string(KindExec), string(KindChange):
		f.Kind = Kind(kind)
	case "all":
	default:
		bad.Add("kind", "must be exec, change or all")
	}
	switch get("view") {
	case "", "full":
	case "summary":
		f.Summary = true
	default:
		bad.Add("view", "must be full or summary")
	}
	return f
}

// IsParam reports whether a text can be a parameter of ParseFilter: the value of a record that is
// longer, or has control characters, cannot be filtered by.
func IsParam(s string) bool {
	return len(s) <= maxParam && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Matches reports whether a list with the filter would have the record. The order and the parts of
// the records do not matter.
func (f Filter) Matches(r Record) bool {
	for _, want := range [][2]string{
		{f.TaskID, r.TaskID},
		{f.ProjectID, r.ProjectID},
		{f.ConversationID, r.ConversationID},
		{f.SkillID, r.SkillID},
		{f.SkillDigest, r.SkillDigest},
		{f.AgentID, r.AgentID},
		{f.UserID, r.UserID},
		{f.Backend, r.Backend},
		{f.Runner, r.Runner},
		{f.ReplayOf, r.ReplayOf},
		{f.TraceID, r.TraceID},
		{f.SessionID, r.SessionID},
		{string(f.Kind), string(cmp.Or(r.Kind, KindExec))},
		{string(f.ErrorReason), string(r.ErrorReason)},
		{f.RequestedBy, r.RequestedBy},
	} {
		if want[0] != "" && want[0] != want[1] {
			return false
		}
	}
	for _, in := range []struct {
		values []string
		value  string
	}{{f.ExecIDs, r.ExecID}, {f.Projects, r.ProjectID}, {f.Agents, r.AgentID}, {f.Users, r.UserID}} {
		if in.values != nil && !slices.Contains(in.values, in.value) {
			return false
		}
	}
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status)) && (!f.InputsKept || r.InputsKept == Kept) &&
		(!f.Sessions || r.IsSession()) &&
		(f.Network == "" || r.NetDenied > 0 || f.Network == NetworkUsed && r.NetConnections > 0) &&
		(f.ExitCodeNot == nil || r.ExitCode != nil && *r.ExitCode != *f.ExitCodeNot) &&
		!r.CreatedAt.Before(f.Since) && (f.Until.IsZero() || r.CreatedAt.Before(f.Until))
}

// dateOnly is a date, the beginning of its day in UTC.
const dateOnly = "2006-01-02"

// Today is the text for the beginning of the current day in UTC.
const Today = "today"

// ParseTime parses a time in RFC 3339, a date, Today, or a duration before now. It returns the zero
// time for an empty text only: it means that there is no bound, and no text of the year 1 may.
func ParseTime(field, text string, now time.Time, bad *fault.Fields) time.Time {
	if text == "" {
		return time.Time{}
	}
	if ago, ok := duration(text); ok {
		return now.UTC().Add(-ago)
	}
	if text == Today {
		return now.UTC().Truncate(24 * time.Hour)
	}
	layout := time.RFC3339Nano
	if len(text) == len(dateOnly) {
		layout = dateOnly
	}
	t, err := time.Parse(layout, text)
	if err != nil || t.Year() <= 1 || t.Year() > 9999 {
		hint := ""
		if strings.Count(text, ":") == 3 && strings.Contains(text, " ") { // of the offset
			hint = " (in a URL, write + as %2B)"
		}
		bad.Add(field, "must be a date like 2026-11-21 or today, its beginning in UTC; an RFC 3339 time like 2026-11-21T06:50:31Z%s; "+
			"or a duration before now like 90m, 24h or 7d, of 1 to 9999 s, m, h or d", hint)
	}
	return t.UTC()
}

// duration parses a whole number from 1 to 9999 of seconds, minutes, hours or days. s must not be
// empty.
func duration(s string) (time.Duration, bool) {
	number, letter := s[:len(s)-1], s[len(s)-1:]
	unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[letter]
	n, err := strconv.ParseUint(number, 10, 32)
	return time.Duration(n) * unit, err == nil && unit > 0 && n > 0 && n <= 9999
}
