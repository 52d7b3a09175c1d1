// Package planprobe checks what statements cost by the plans of the databases. A list of execs, of
// administrative events or of the registry must read one index in its order, sort nothing, and
// touch few pages, for any number of rows. No statement at all may read a table from end to end
// that grows with use. Tests and the bench program use it. It imports no driver; a database that
// can be probed implements Database.
package planprobe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"secbox/audit"
)

// Database can be filled quickly, and explains its statements.
type Database interface {
	Kind() string // "sqlite" or "postgres"
	Audit() audit.Store
	Load(ctx context.Context, rows iter.Seq[audit.Record]) error
	// LoadHistories loads execs as they were opened, and as they ended. The first ones get no
	// events.
	LoadHistories(ctx context.Context, withoutEvents int, execs iter.Seq2[audit.Record, audit.Record]) error

	// Watch calls see with each statement that runs, until stop is called. Calls may be concurrent.
	Watch(see func(statement string, args []any)) (stop func())
	// Explain returns the plan of a query, which PostgreSQL runs.
	Explain(ctx context.Context, statement string, args []any) (string, error)
	// ExplainAtBest returns plans of a statement, which does not run, in which PostgreSQL avoids
	// reading whole tables and sorting at any cost.
	ExplainAtBest(ctx context.Context, statement string, args []any) ([]string, error)
}

// ExecsPerTask is the number of generated execs of one task: one page of a list.
const ExecsPerTask = 50

// Execs generates n records like the records of a busy installation: the execs of one task are far
// apart, most have succeeded, and they share few projects, users and skills. The same n gives the
// same records.
func Execs(n int) iter.Seq[audit.Record] {
	return func(yield func(audit.Record) bool) {
		for i := range n {
			if !yield(Exec(i, n)) {
				return
			}
		}
	}
}

// Tasks is the number of tasks of Execs(n).
func Tasks(n int) int { return max(1, n/ExecsPerTask) }

// TaskID is the id of a task.
func TaskID(task int) string { return fmt.Sprintf("task-%07d", task) }

// Exec is the i-th of Execs(n).
func Exec(i, n int) audit.Record {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 250 * time.Millisecond)
	started, ended := created.Add(2*time.Millisecond), created.Add(212*time.Millisecond)
	code := 0
	r := audit.Record{
		ExecID:    execID(created, i),
		ProjectID: fmt.Sprintf("project-%03d", i%101), TaskID: TaskID(i % Tasks(n)),
		ConversationID: fmt.Sprintf("conversation-%05d", i%(Tasks(n)/3+1)),
		AgentID:        fmt.Sprintf("agent-%02d", i%7), UserID: fmt.Sprintf("user-%04d", i%499),
		SkillID:     fmt.Sprintf("skill.number%d", i%23),
		SkillDigest: fmt.Sprintf("%064x", i%211),
		Image:       "secbox-sandbox:latest", ImageID: "sha256:" + strings.Repeat("ab", 32), Cmd: "bash",
		Args: []string{"-lc", fmt.Sprintf("python3 /workspace/inputs/main.py --round %d && ls -l /workspace/artifacts", i)},
		Cwd:  "/workspace/work", EnvKeys: []string{"LANG", "ROUND"},
		Inputs:         []audit.Input{{Path: "main.py", Size: 812, SHA256: strings.Repeat("0123456789abcdef", 4)}},
		PolicySnapshot: json.RawMessage(snapshot), Status: audit.Succeeded, ExitCode: &code,
		CreatedAt: created, StartedAt: started, EndedAt: ended, DurationMS: 210,
		ArtifactsPath: "projects/x/artifacts/" + execID(created, i), ManifestDigest: strings.Repeat("fedcba9876543210", 4),
		StdoutBytes: 1200, ArtifactsBytes: 4096, NodeID: "node-1", Backend: audit.BackendDocker,
		RequestedBy: fmt.Sprintf("token-%d", i%5), RequestDigest: strings.Repeat("00ff", 16), IdempotencyKey: "",
		SettingsDigest: strings.Repeat("a5", 32),
	}
	if i%2 == 0 {
		r.InputsKept = audit.Kept
	}
	if i%50 == 0 {
		r.ReplayOf = fmt.Sprintf("replayed-%d", i/50%7)
	}
	if i%60 == 0 {
		r.TraceID, r.SpanID = TraceID(i/60%11), fmt.Sprintf("%016x", i)
	}
	switch { // sessions, and execs in them
	case i%700 == 0:
		r.SessionID = r.ExecID
	case i%70 == 0:
		r.SessionID, r.SessionSeq = SessionID(i/700%11), int64(i/70)
	}
	if i%503 == 0 {
		r.Backend, r.Runner = audit.BackendRemote, "laptop"
	}
	if i%13 == 0 {
		r.Kind = audit.KindChange
	}
	switch {
	case i%97 == 0:
		r.Status, r.ErrorReason = audit.Timeout, audit.ReasonTimeout
	case i%11 == 0:
		code = 1
		r.Status, r.ErrorReason = audit.Failed, audit.NonzeroExit
	}
	return r
}

// TraceID is the n-th of the traces of Exec.
func TraceID(n int) string { return fmt.Sprintf("%032x", 1+n) }

// SessionID is the n-th session of Exec. No session has a row.
func SessionID(n int) string { return fmt.Sprintf("session-%d", n) }

// snapshot is as large as a real policy snapshot.
const snapshot = `{"fields": {
	"net.mode": {"value": "none", "layer": "default", "ceiling": "none", "ceiling_from": "settings"},
	"timeout_ms": {"value": 60000, "layer": "default", "ceiling": 60000, "ceiling_from": "settings"},
	"kill_grace_ms": {"value": 2000, "layer": "default", "ceiling": 60000, "ceiling_from": "settings"},
	"max_stdout_bytes": {"value": 1048576, "layer": "default", "ceiling": 1048576, "ceiling_from": "settings"},
	"max_stderr_bytes": {"value": 1048576, "layer": "default", "ceiling": 1048576, "ceiling_from": "settings"},
	"max_artifacts_bytes_total": {"value": 52428800, "layer": "default", "ceiling": 52428800, "ceiling_from": "settings"},
	"memory_mb": {"value": 1024, "layer": "default", "ceiling": 1024, "ceiling_from": "settings"},
	"cpu_cores": {"value": 1, "layer": "default", "ceiling": 1, "ceiling_from": "settings"},
	"pids": {"value": 256, "layer": "default", "ceiling": 256, "ceiling_from": "settings"},
	"tmp_mb": {"value": 256, "layer": "default", "ceiling": 256, "ceiling_from": "settings"},
	"shm_mb": {"value": 1024, "layer": "default", "ceiling": 1024, "ceiling_from": "settings"},
	"image": {"value": "secbox-sandbox:latest", "layer": "default", "ceiling": "secbox-sandbox:latest", "ceiling_from": "settings"},
	"fs.read": {"value": ["inputs/**"], "layer": "default", "ceiling": ["inputs/**"], "ceiling_from": "settings"},
	"fs.write": {"value": ["work/**"], "layer": "default", "ceiling": ["work/**"], "ceiling_from": "settings"}
}, "settings_digest": "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"}`

// execID is a UUIDv7 of the time and the number.
func execID(at time.Time, i int) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], uint64(i))
	id[6], id[8] = id[6]&0x0f|0x70, 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Fill loads Execs(n) into an empty database.
func Fill(ctx context.Context, db Database, n int) error { return db.Load(ctx, Execs(n)) }
