package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"secbox/api/wire"
	"secbox/audit"
	"secbox/runner"
)

// execResult converts the result of an exec for the API.
func execResult(res runner.Result) wire.ExecResult {
	rec := res.Record
	out := wire.ExecResult{
		ExecID: rec.ExecID, ProjectID: rec.ProjectID, Status: rec.Status, ExitCode: rec.ExitCode, ErrorReason: rec.ErrorReason,
		Detail: rec.Detail, ArtifactsDir: rec.ArtifactsPath, Stdout: text(res.Stdout), Stderr: text(res.Stderr),
		StdoutTruncated: rec.StdoutTruncated, StderrTruncated: rec.StderrTruncated, StdoutBytes: rec.StdoutBytes,
		StderrBytes:           rec.StderrBytes,
		StdoutInlineTruncated: res.StdoutCut, StderrInlineTruncated: res.StderrCut,
		StartedAt: timestamp(rec.StartedAt), EndedAt: timestamp(rec.EndedAt), DurationMS: rec.DurationMS, Artifacts: notNil(res.Artifacts),
		Omitted: notNil(res.NotKept), OmittedCount: res.NotKeptCount,
		Audit: "stored", Warm: rec.Warm, Attached: rec.Attached,
	}
	if rec.ArtifactsPath != "" {
		out.StdoutPath, out.StderrPath = rec.ArtifactsPath+"/stdout.txt", rec.ArtifactsPath+"/stderr.txt"
	}
	if res.Results != nil {
		out.Results = new(json.RawMessage(res.Results))
	}
	if res.Spooled {
		out.Audit = "spooled"
	}
	return out
}

// recordFields pairs the columns of a record with the fields of ExecRecord, by their JSON names.
var recordFields = func() (all []recordField) {
	for _, c := range audit.Columns {
		for f := range reflect.TypeFor[wire.ExecRecord]().Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == c.Name {
				all = append(all, recordField{c.Index, f.Index[0]})
			}
		}
	}
	return all
}()

type recordField struct {
	from, to int // indices in audit.Record and ExecRecord
}

// execRecord converts a record for the API. names has the names of tokens by id.
func execRecord(rec audit.Record, names map[string]string) wire.ExecRecord {
	rec.Kind = cmp.Or(rec.Kind, audit.KindExec)
	rec.Args, rec.EnvKeys, rec.EnvHMACs, rec.Inputs = notNil(rec.Args), notNil(rec.EnvKeys), notNil(rec.EnvHMACs), notNil(rec.Inputs)
	out := wire.ExecRecord{RequestedByName: names[rec.RequestedBy]}
	from, to := reflect.ValueOf(&rec).Elem(), reflect.ValueOf(&out).Elem()
	for _, f := range recordFields {
		answer(to.Field(f.to), from.Field(f.from))
	}
	if len(rec.Unreadable) > 0 {
		out.Unreadable = &rec.Unreadable
	}
	if rec.Request != "" {
		out.Request = &rec.Request
	}
	return out
}

// answer sets a field of an answer. A pointer to the value of a column stays nil if the column is
// empty.
func answer(to, value reflect.Value) {
	if to.Kind() == reflect.Pointer && value.Kind() != reflect.Pointer {
		if value.IsZero() || value.Kind() != reflect.Struct && value.Len() == 0 {
			return
		}
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if value.Type() != to.Type() {
		value = value.Convert(to.Type())
	}
	to.Set(value)
}

// warnOfUnreadable logs that the database has damaged values, in one line for an answer.
func (s *Server) warnOfUnreadable(recs ...audit.Record) {
	n, first := 0, audit.Record{}
	for _, rec := range recs {
		if len(rec.Unreadable) > 0 {
			if n++; n == 1 {
				first = rec
			}
		}
	}
	if n > 0 {
		s.log.Warn("records have values that were not written by core-api; run core-api audit verify", "records", n, "first", first.ExecID,
			"columns", slices.Sorted(maps.Keys(first.Unreadable)))
	}
}
