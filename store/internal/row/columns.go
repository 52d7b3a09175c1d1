package row

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
)

// column is one column of sandbox_execs. It is named like the JSON of its field in audit.Record.
type column struct {
	name  string
	field any // points to the record's field
	use   use
}

// use says how a column is written and read beside the insert, which sets them all.
type use uint8

const (
	onStart  use = 1 << iota // Start sets it
	onClose                  // Close sets it
	emptying                 // Close empties it if the record has it empty, and leaves it alone otherwise
	key                      // a text of at most MaxKey bytes, because it has an index
	large                    // summaries leave it out
)

// columns is the one table of all columns, with the fields of r. The names of columns that exist never change.
func columns(r *audit.Record) []column {
	return []column{
		{"exec_id", &r.ExecID, key},
		{"kind", (*string)(&r.Kind), 0},
		{"project_id", &r.ProjectID, key},
		{"task_id", &r.TaskID, key},
		{"conversation_id", &r.ConversationID, key},
		{"agent_id", &r.AgentID, key},
		{"user_id", &r.UserID, key},
		{"skill_id", &r.SkillID, key},
		{"skill_digest", &r.SkillDigest, key},
		{"image", &r.Image, 0},
		{"image_id", &r.ImageID, onStart | onClose},
		{"cmd", &r.Cmd, 0},
		{"args", &r.Args, large},
		{"cwd", &r.Cwd, 0},
		{"env_keys", &r.EnvKeys, large},
		{"inputs", &r.Inputs, large},
		{"policy_snapshot", &r.PolicySnapshot, large},
		{"status", (*string)(&r.Status), onClose},
		{"exit_code", &r.ExitCode, onClose},
		{"error_reason", (*string)(&r.ErrorReason), onClose},
		{"detail", &r.Detail, onStart | onClose},
		{"created_at", &r.CreatedAt, 0},
		{"started_at", &r.StartedAt, onStart | onClose},
		{"ended_at", &r.EndedAt, onClose},
		{"duration_ms", &r.DurationMS, onClose},
		{"artifacts_path", &r.ArtifactsPath, onClose},
		{"manifest_digest", &r.ManifestDigest, onClose},
		{"stdout_truncated", &r.StdoutTruncated, onClose},
		{"stderr_truncated", &r.StderrTruncated, onClose},
		{"stdout_bytes", &r.StdoutBytes, onClose},
		{"stderr_bytes", &r.StderrBytes, onClose},
		{"artifacts_bytes", &r.ArtifactsBytes, onClose},
		{"oom_events", &r.OOMEvents, onClose},
		{"cpu_us", &r.CPUUS, onClose},
		{"max_rss_bytes", &r.MaxRSSBytes, onClose},
		{"node_id", &r.NodeID, key | onStart | onClose},
		{"backend", &r.Backend, 0},
		{"runner", &r.Runner, key},
		{"warm", &r.Warm, onStart | onClose},
		{"attached", &r.Attached, onStart | onClose},
		{"requested_by", &r.RequestedBy, key},
		{"request_digest", &r.RequestDigest, 0},
		{"idempotency_key", &r.IdempotencyKey, key | onClose | emptying},
		{"settings_digest", &r.SettingsDigest, 0},
		{"replay_of", &r.ReplayOf, key},
		{"env_hmacs", &r.EnvHMACs, large},
		{"hmac_salt", &r.HMACSalt, 0},
		{"stdin_hmac", &r.StdinHMAC, 0},
		{"stdin_bytes", &r.StdinBytes, 0},
		{"inputs_kept", (*string)(&r.InputsKept), onClose},
		{"trace_id", &r.TraceID, key},
		{"span_id", &r.SpanID, 0},
		{"sha256_before", &r.SHA256Before, onClose},
		{"sha256_after", &r.SHA256After, onClose},
		{"async", &r.Async, 0},
		{"priority", (*string)(&r.Priority), 0},
		{"large_lists", &r.LargeLists, large},
	}
}

// The parts of SQL statements that name columns. In the assignments $1 is the exec_id, and the values follow.
var (
	ColumnList     = strings.Join(Columns(), ", ") // in the order of ScanRecord
	InsertParams   = insertParams()                // "$1, $2, …", one for each column
	StartSet       = assignments(onStart)          // what Start sets beside the status
	CloseSet       = assignments(onClose)
	CloseOwn       = "node_id IN ('', " + nodeParam(onClose) + ")" // the condition that the row has no node yet or that of the closed record
	Correctable    = "status = 'lost'"                             // the condition that a result may arrive after the end
	StartLeased    = leased(nodeParam(onStart))                    // the condition that the lease of the record's node was not retired
	summaryColumns = withoutLarge()                                // ColumnList with empty values for the large columns
	commandColumns = withoutLarge("args", "large_lists")
	onlyCommands   = strings.Join(commandNames, ", ")
)

// commandNames are the columns that a search in commands needs.
var commandNames = []string{"exec_id", "created_at", "cmd", "args"}

// Columns is the names of all columns, in the order of ScanRecord.
func Columns() []string {
	var names []string
	for _, c := range columns(&audit.Record{}) {
		names = append(names, c.name)
	}
	return names
}

func insertParams() string {
	var params []string
	for i := range columns(&audit.Record{}) {
		params = append(params, "$"+strconv.Itoa(i+1))
	}
	return strings.Join(params, ", ")
}

// assignments is "a = $2, b = $3, …" for the columns that a statement sets.
func assignments(set use) string {
	var parts []string
	for _, c := range columns(&audit.Record{}) {
		if c.use&set == 0 {
			continue
		}
		value := "$" + strconv.Itoa(len(parts)+2)
		if c.use&emptying != 0 {
			value = "CASE WHEN " + value + " = '' THEN '' ELSE " + c.name + " END"
		}
		parts = append(parts, c.name+" = "+value)
	}
	return strings.Join(parts, ", ")
}

// nodeParam is the parameter of assignments that has the node_id.
func nodeParam(set use) string {
	param := 1
	for _, c := range columns(&audit.Record{}) {
		if c.use&set != 0 {
			param++
		}
		if c.name == "node_id" {
			break
		}
	}
	return "$" + strconv.Itoa(param)
}

func withoutLarge(except ...string) string {
	var parts []string
	for _, c := range columns(&audit.Record{}) {
		if c.use&large != 0 && !slices.Contains(except, c.name) {
			c.name = fmt.Sprintf("'%s' AS %s", c.value(nil), c.name)
		}
		parts = append(parts, c.name)
	}
	return strings.Join(parts, ", ")
}

// TimeEncoder turns a time into what the driver stores; it is never given a zero time.
type TimeEncoder func(time.Time) any

// InsertArgs cleans and checks a record, and returns it with the values of all columns.
func InsertArgs(r audit.Record, encodeTime TimeEncoder) (audit.Record, []any, error) {
	return args(r, 0, encodeTime)
}

// StartArgs cleans and checks a record, and returns it with its exec_id and the values of StartSet.
func StartArgs(r audit.Record, encodeTime TimeEncoder) (audit.Record, []any, error) {
	return args(r, onStart, encodeTime)
}

// CloseArgs cleans and checks a record that has ended, and returns it with its exec_id and the values of CloseSet.
func CloseArgs(r audit.Record, encodeTime TimeEncoder) (audit.Record, []any, error) {
	return args(r, onClose, encodeTime)
}

// args is the exec_id and the values of the columns in set; 0 is all of them.
func args(r audit.Record, set use, encodeTime TimeEncoder) (audit.Record, []any, error) {
	r.Kind = cmp.Or(r.Kind, audit.KindExec)
	all := columns(&r)
	err := clean(all)
	if err == nil {
		err = check(&r, all, set == onClose)
	}
	if err != nil {
		return audit.Record{}, nil, err
	}
	values := make([]any, 0, len(all))
	for i, c := range all {
		if i == 0 || set == 0 || c.use&set != 0 {
			values = append(values, c.value(encodeTime))
		}
	}
	return r, values, nil
}

// value is what the driver stores for the column. JSON columns are strings.
func (c column) value(encodeTime TimeEncoder) any {
	switch f := c.field.(type) {
	case *string:
		return *f
	case *bool:
		return *f
	case *int64:
		return *f
	case **int:
		if *f == nil {
			return nil
		}
		return int64(**f)
	case **int64:
		if *f == nil {
			return nil
		}
		return **f
	case *time.Time:
		if f.IsZero() {
			return nil
		}
		return encodeTime(*f)
	case *json.RawMessage:
		if len(*f) == 0 {
			return "null"
		}
		return string(*f)
	case *[]string:
		return list(*f)
	case *[]audit.Input:
		return list(*f)
	case *map[string]audit.LargeList:
		if len(*f) == 0 {
			return "{}"
		}
		object, _ := json.Marshal(*f) // numbers and cleaned text cannot fail
		return string(object)
	}
	panic(fmt.Sprintf("column %s: no SQL value for a %T", c.name, c.field))
}

// list is the JSON of a list; a nil one is [].
func list[T string | audit.Input](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	data, _ := json.Marshal(values) // text and numbers cannot fail
	return string(data)
}

// ScanRecord reads one row with all columns in their order.
func ScanRecord(scan Scan) (audit.Record, error) { return newRecordScanner().next(scan) }

// recordScanner reads rows like ScanRecord, and allocates only what the records keep.
type recordScanner struct {
	r    *audit.Record
	dest []any // points into r
}

// newRecordScanner is for rows with all columns, or with those named.
func newRecordScanner(only ...string) recordScanner {
	r := new(audit.Record)
	all := columns(r)
	if len(only) > 0 {
		named := make([]column, len(only))
		for i, name := range only {
			named[i] = all[slices.IndexFunc(all, func(c column) bool { return c.name == name })]
		}
		all = named
	}
	dest := make([]any, len(all))
	for i, c := range all {
		dest[i] = &cell{name: c.name, field: c.field, unreadable: &r.Unreadable}
	}
	return recordScanner{r, dest}
}

func (s recordScanner) next(scan Scan) (audit.Record, error) {
	*s.r = audit.Record{}
	if err := scan(s.dest...); err != nil {
		return audit.Record{}, err
	}
	r := *s.r
	if len(r.LargeLists) == 0 {
		r.LargeLists = nil
	}
	if string(r.PolicySnapshot) == "null" {
		r.PolicySnapshot = nil
	}
	return r, nil
}
