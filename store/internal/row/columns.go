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

// column is a column of sandbox_execs with its field in a record.
type column struct {
	*audit.Column
	field any // points to the record's field
}

// columns is all columns, with the fields of r. The names of columns that exist never change.
func columns(r *audit.Record) []column {
	all := make([]column, len(audit.Columns))
	for i, c := range audit.Columns {
		all[i] = column{&audit.Columns[i], c.In(r)}
	}
	return all
}

// The parts of SQL statements that name columns. In the assignments $1 is the exec_id, and the
// values follow.
var (
	ColumnList   = strings.Join(Columns(), ", ") // in the order of ScanRecord
	InsertParams = insertParams()                // "$1, $2, …", one for each column
	StartSet     = assignments(audit.OnStart)    // what Start sets beside the status
	CloseSet     = assignments(audit.OnClose)
	// the condition that the row has no node yet, or the node of the closed record
	CloseOwn    = "node_id IN ('', " + nodeParam(audit.OnClose) + ")"
	Correctable = "status = 'lost'" // the condition that a result may arrive after the end
	// the condition that the lease of the record's node was not retired
	StartLeased    = leased(nodeParam(audit.OnStart))
	summaryColumns = withoutLarge() + ", '' AS request" // askedColumns with empty values for the large ones
	commandColumns = withoutLarge("args", "large_lists") + ", " + request
	onlyCommands   = strings.Join(commandNames, ", ") + ", " + request
	askedColumns   = ColumnList + ", " + request // in the order of newAskedScanner
	onlyCallers    = strings.Join(callerNames, ", ")
)

// request is Record.Request of a row of sandbox_execs. Only skills have one.
const request = "CASE WHEN skill_id = '' THEN '' ELSE coalesce((SELECT q.request FROM sandbox_exec_requests AS q" +
	" WHERE q.exec_id = sandbox_execs.exec_id), '') END AS request"

// commandNames are the columns that a search needs.
var commandNames = []string{
	"exec_id", "created_at", "cmd", "args", "project_id", "user_id", "agent_id", "task_id", "conversation_id", "skill_id", "image",
	"error_reason", "detail",
}

// callerNames are the columns that a report needs.
var callerNames = []string{
	"exec_id", "created_at", "kind", "project_id", "agent_id", "user_id", "skill_id", "requested_by", "status", "error_reason", "detail",
}

// Columns is the names of all columns, in the order of ScanRecord.
func Columns() []string {
	var names []string
	for _, c := range audit.Columns {
		names = append(names, c.Name)
	}
	return names
}

func insertParams() string {
	var params []string
	for i := range audit.Columns {
		params = append(params, "$"+strconv.Itoa(i+1))
	}
	return strings.Join(params, ", ")
}

// assignments is "a = $2, b = $3, …" for the columns that a statement sets.
func assignments(set audit.Use) string {
	var parts []string
	for _, c := range audit.Columns {
		if c.Use&set == 0 {
			continue
		}
		value := "$" + strconv.Itoa(len(parts)+2)
		if c.Use&audit.Clears != 0 {
			value = "CASE WHEN " + value + " = '' THEN '' ELSE " + c.Name + " END"
		}
		parts = append(parts, c.Name+" = "+value)
	}
	return strings.Join(parts, ", ")
}

// nodeParam is the parameter of assignments that has the node_id.
func nodeParam(set audit.Use) string {
	param := 1
	for _, c := range audit.Columns {
		if c.Use&set != 0 {
			param++
		}
		if c.Name == "node_id" {
			break
		}
	}
	return "$" + strconv.Itoa(param)
}

func withoutLarge(except ...string) string {
	var parts []string
	for _, c := range columns(&audit.Record{}) {
		part := c.Name
		if c.Use&audit.Large != 0 && !slices.Contains(except, c.Name) {
			part = fmt.Sprintf("'%s' AS %s", c.value(nil), c.Name)
		}
		parts = append(parts, part)
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
	return args(r, audit.OnStart, encodeTime)
}

// CloseArgs cleans and checks a record that has ended, and returns it with its exec_id and the
// values of CloseSet.
func CloseArgs(r audit.Record, encodeTime TimeEncoder) (audit.Record, []any, error) {
	return args(r, audit.OnClose, encodeTime)
}

// args is the exec_id and the values of the columns in set; 0 is all of them.
func args(r audit.Record, set audit.Use, encodeTime TimeEncoder) (audit.Record, []any, error) {
	r.Kind = cmp.Or(r.Kind, audit.KindExec)
	all := columns(&r)
	r.Request = Text(r.Request)
	err := clean(all)
	if err == nil {
		err = check(&r, all, set == audit.OnClose)
	}
	if err != nil {
		return audit.Record{}, nil, err
	}
	values := make([]any, 0, len(all))
	for i, c := range all {
		if i == 0 || set == 0 || c.Use&set != 0 {
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
	panic(fmt.Sprintf("column %s: no SQL value for a %T", c.Name, c.field))
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

// newAskedScanner is newRecordScanner for rows that have the request behind the columns.
func newAskedScanner(only ...string) recordScanner {
	s := newRecordScanner(only...)
	s.dest = append(s.dest, &cell{name: "request", field: &s.r.Request, unreadable: &s.r.Unreadable})
	return s
}

// newRecordScanner is for rows with all columns, or with those named.
func newRecordScanner(only ...string) recordScanner {
	r := new(audit.Record)
	all := columns(r)
	if len(only) > 0 {
		named := make([]column, len(only))
		for i, name := range only {
			named[i] = all[slices.IndexFunc(all, func(c column) bool { return c.Name == name })]
		}
		all = named
	}
	dest := make([]any, len(all))
	for i, c := range all {
		dest[i] = &cell{name: c.Name, field: c.field, unreadable: &r.Unreadable}
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
