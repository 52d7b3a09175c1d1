package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/translog/verify"
)

// connection is the n-th connection of an exec, which has ended.
func connection(execID string, n int64) audit.Connection {
	return audit.Connection{
		ExecID: execID, Seq: n, Protocol: audit.ProtocolConnect, Host: "api.example.org", Port: 443, Address: "93.184.215.14",
		Allowed: true, Rule: "*.example.org", Secrets: []string{"one", "two"}, BytesOut: 1 << 40, BytesIn: n,
		StartedAt: base.Add(time.Duration(n) * time.Microsecond), EndedAt: base.Add(time.Second), End: audit.ConnClosed,
		Detail: "ü\x00\xff",
	}
}

// save saves connections.
func save(t *testing.T, f Fixture, rows []audit.Connection) {
	t.Helper()
	if err := f.Connections().SaveConnections(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// connectionRows saves, replaces and lists connections, and removes them with their exec.
func connectionRows(t *testing.T, f Fixture) {
	s := f.Connections()
	first, second := connection("x", 1), connection("x", 2)
	open := second
	open.EndedAt, open.End, open.BytesIn, open.Secrets = time.Time{}, "", 0, nil
	save(t, f, []audit.Connection{first, open, connection("y", 1)})
	list := func(after int64, limit int) []audit.Connection {
		t.Helper()
		rows, err := s.Connections(t.Context(), "x", after, limit)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	first.Detail, second.Detail, open.Detail, open.Secrets = "ü\u2400\ufffd", "ü\u2400\ufffd", "ü\u2400\ufffd", []string{}
	if got := list(0, 10); !reflect.DeepEqual(got, []audit.Connection{first, open}) {
		t.Errorf("%+v", got)
	}
	save(t, f, []audit.Connection{second})
	if got := list(0, 10); !reflect.DeepEqual(got, []audit.Connection{first, second}) {
		t.Errorf("%+v", got)
	}
	if got := list(1, 10); len(got) != 1 || got[0].Seq != 2 {
		t.Errorf("%+v", got)
	}
	if got := list(0, 1); len(got) != 1 || got[0].Seq != 1 {
		t.Errorf("%+v", got)
	}
	if got := list(2, 10); got == nil || len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// lostConnections: the connections of an exec whose node is gone end with it, and its record sums
// them up.
func lostConnections(t *testing.T, f Fixture) {
	r := in(record(), func(r *audit.Record) { r.NodeID = "gone" })
	mustOpen(t, f.Audit(), r)
	ended, denied, open := connection(r.ExecID, 1), connection(r.ExecID, 2), connection(r.ExecID, 3)
	denied.Allowed, denied.BytesOut, denied.BytesIn, denied.End = false, 0, 0, audit.ConnNotAllowed
	open.EndedAt, open.End, open.BytesOut, open.BytesIn = time.Time{}, "", 0, 0
	save(t, f, []audit.Connection{ended, denied, open})
	if lost, err := f.Audit().LoseOpen(t.Context(), "gone", nil); err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	rows, err := f.Connections().Connections(t.Context(), r.ExecID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if got := rows[2]; got.End != audit.ConnLost || got.EndedAt.IsZero() || !strings.Contains(got.Detail, "node") {
		t.Errorf("%+v", got)
	}
	record, want := mustGet(t, f.Audit(), r.ExecID), audit.TrafficOf(rows)
	got := audit.Traffic{
		Connections: record.NetConnections, Denied: record.NetDenied, BytesOut: record.NetBytesOut, BytesIn: record.NetBytesIn,
		Digest: record.NetDigest, Marks: record.NetMarks,
	}
	if !reflect.DeepEqual(got, want) || got.Connections != 3 || got.Denied != 1 || record.Status != audit.Lost {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// changedConnections: a verification names the connection that was changed, added or removed.
func changedConnections(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	r := record()
	mustOpen(t, f.Audit(), r)
	rows := []audit.Connection{connection(r.ExecID, 1), connection(r.ExecID, 2), connection(r.ExecID, 3)}
	for i := range rows {
		rows[i].Detail = ""
	}
	open := rows[1]
	open.EndedAt, open.End = time.Time{}, ""
	save(t, f, []audit.Connection{rows[0], open})
	r = ended(r)
	audit.TrafficOf(rows).Set(&r)
	r.Connections = rows[1:] // the end stores what was not
	if _, err := f.Audit().Close(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", e.keyFile))
	check := func(want ...string) {
		t.Helper()
		lines, _, _ := e.verify(t, verify.Options{})
		var named []string
		for _, line := range lines {
			of, what, _ := strings.Cut(line, ": ")
			if what, _, _ = strings.Cut(what, ":"); of == "exec "+r.ExecID {
				named = append(named, what)
			}
		}
		if !slices.Equal(named, want) {
			t.Errorf("%q, want %q", lines, want)
		}
	}
	check()
	of := fmt.Sprintf(" WHERE exec_id = '%s' AND seq = ", r.ExecID)
	e.mustSQL(t, "UPDATE sandbox_connections SET bytes_out = 0"+of+"2")
	check("connection 2", "connections")
	e.mustSQL(t, "DELETE FROM sandbox_connections"+of+"3")
	check("connection 2", "connection 3", "connections")
	save(t, f, append(rows, connection(r.ExecID, 4)))
	check("connection 4", "connections")
	e.mustSQL(t, "DELETE FROM sandbox_connections"+of+"4")
	check()
}
