package api

import (
	"cmp"
	"maps"
	"slices"

	"secbox/api/visible"
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
		StdoutTruncated: rec.StdoutTruncated, StderrTruncated: rec.StderrTruncated, StdoutBytes: rec.StdoutBytes, StderrBytes: rec.StderrBytes,
		StdoutInlineTruncated: res.StdoutCut, StderrInlineTruncated: res.StderrCut,
		StartedAt: timestamp(rec.StartedAt), EndedAt: timestamp(rec.EndedAt), DurationMS: rec.DurationMS, Artifacts: notNil(res.Artifacts),
		Omitted: notNil(res.NotKept), OmittedCount: res.NotKeptCount,
		Audit: "stored", Warm: rec.Warm, Attached: rec.Attached,
	}
	if rec.ArtifactsPath != "" {
		out.StdoutPath, out.StderrPath = rec.ArtifactsPath+"/stdout.txt", rec.ArtifactsPath+"/stderr.txt"
	}
	if res.Spooled {
		out.Audit = "spooled"
	}
	return out
}

// execRecord converts a record for the API. names has the names of tokens by id.
func execRecord(rec audit.Record, names map[string]string) wire.ExecRecord {
	out := wire.ExecRecord{
		ExecID: rec.ExecID, Kind: cmp.Or(rec.Kind, audit.KindExec), SHA256Before: rec.SHA256Before, SHA256After: rec.SHA256After, ProjectID: rec.ProjectID, TaskID: rec.TaskID, ConversationID: rec.ConversationID, AgentID: rec.AgentID,
		UserID: rec.UserID, SkillID: rec.SkillID, SkillDigest: rec.SkillDigest, Image: rec.Image, ImageID: rec.ImageID,
		Cmd: rec.Cmd, Args: notNil(rec.Args), Cwd: rec.Cwd,
		EnvKeys: notNil(rec.EnvKeys), Inputs: notNil(rec.Inputs), Status: rec.Status, ExitCode: rec.ExitCode,
		ErrorReason: rec.ErrorReason, Detail: rec.Detail, CreatedAt: visible.Timestamp(rec.CreatedAt), StartedAt: timestamp(rec.StartedAt),
		EndedAt: timestamp(rec.EndedAt), DurationMS: rec.DurationMS, ArtifactsPath: rec.ArtifactsPath, ManifestDigest: rec.ManifestDigest,
		StdoutTruncated: rec.StdoutTruncated, StderrTruncated: rec.StderrTruncated, StdoutBytes: rec.StdoutBytes, StderrBytes: rec.StderrBytes,
		ArtifactsBytes: rec.ArtifactsBytes, OOMEvents: rec.OOMEvents, CPUUS: rec.CPUUS, MaxRSSBytes: rec.MaxRSSBytes, NodeID: rec.NodeID, Backend: rec.Backend, Runner: rec.Runner, Warm: rec.Warm, Attached: rec.Attached,
		RequestedBy: rec.RequestedBy, RequestedByName: names[rec.RequestedBy], RequestDigest: rec.RequestDigest,
		IdempotencyKey: rec.IdempotencyKey, SettingsDigest: rec.SettingsDigest,
		ReplayOf: rec.ReplayOf, EnvHMACs: notNil(rec.EnvHMACs), HMACSalt: rec.HMACSalt, StdinHMAC: rec.StdinHMAC, StdinBytes: rec.StdinBytes, InputsKept: rec.InputsKept, Async: rec.Async, Priority: rec.Priority,
		TraceID: rec.TraceID, SpanID: rec.SpanID,
	}
	if len(rec.LargeLists) > 0 {
		out.LargeLists = &rec.LargeLists
	}
	if len(rec.PolicySnapshot) > 0 {
		out.PolicySnapshot = &rec.PolicySnapshot
	}
	if len(rec.Unreadable) > 0 {
		out.Unreadable = &rec.Unreadable
	}
	return out
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
