package policy_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"secbox/fault"
	"secbox/policy"
)

// TestWithin asks for each field alone: what bounds a command may become less, what a container has
// may not change.
func TestWithin(t *testing.T) {
	session, err := resolver(t, policy.Config{Images: []string{"tools:1"}}).Resolve(nil, policy.Layer{Limits: policy.Limits{
		TimeoutMS: ptr[int64](20_000), MemoryMB: ptr[int64](300),
	}}, policy.Host{})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(session)
	less := policy.Layer{Limits: policy.Limits{
		TimeoutMS: ptr[int64](5), KillGraceMS: ptr[int64](1), MaxStdoutBytes: ptr[int64](2), MaxStderrBytes: ptr[int64](3),
		MaxArtifactsBytesTotal: ptr[int64](4),
	}}
	narrowed, err := session.Within(nil, less)
	if err != nil {
		t.Fatal(err)
	}
	if v := narrowed.Values; v.TimeoutMS != 5 || v.KillGraceMS != 1 || v.MaxStdoutBytes != 2 || v.MaxStderrBytes != 3 || v.MaxArtifactsBytesTotal != 4 ||
		v.MemoryMB != 300 {
		t.Errorf("%+v", v)
	}
	if f := narrowed.Fields["timeout_ms"]; f != (policy.Field{Value: int64(5), Layer: "request", Ceiling: int64(20_000), CeilingFrom: "session"}) {
		t.Errorf("%+v", f)
	}
	short, err := session.Within(nil, policy.Layer{Limits: policy.Limits{TimeoutMS: ptr[int64](3000)}})
	if err != nil || short.Values.KillGraceMS != 300 {
		t.Errorf("%v: the grace of 3 s is %d ms", err, short.Values.KillGraceMS)
	}
	if f := narrowed.Fields["memory_mb"]; !reflect.DeepEqual(f, session.Fields["memory_mb"]) {
		t.Errorf("%+v", f)
	}
	if after, _ := json.Marshal(session); string(after) != string(before) {
		t.Error("the session's own snapshot has changed")
	}
	stored, _ := json.Marshal(narrowed)
	if again, err := policy.ParseSnapshot(stored); err != nil || !reflect.DeepEqual(again, narrowed) {
		t.Errorf("%v: stored as %s", err, stored)
	}

	same := policy.Layer{Limits: policy.Limits{MemoryMB: ptr[int64](300), TimeoutMS: ptr[int64](20_000)}, NetMode: ptr("none")}
	if _, err := session.Within(nil, same); err != nil {
		t.Errorf("its own values: %v", err)
	}
	for field, l := range map[string]policy.Layer{
		"timeout_ms": {Limits: policy.Limits{TimeoutMS: ptr[int64](20_001)}},
		"memory_mb":  {Limits: policy.Limits{MemoryMB: ptr[int64](299)}},
		"pids":       {Limits: policy.Limits{PIDs: ptr[int64](50)}},
		"image":      {Image: ptr("tools:1")},
		"fs.read":    {FSRead: []string{"inputs/**"}},
		"fs.write":   {FSWrite: []string{}},
	} {
		_, err := session.Within(nil, l)
		if e := fault.From(err); e.Code != fault.PolicyDenied || len(e.Fields) != 1 || e.Fields[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err = session.Within(nil, policy.Layer{Limits: policy.Limits{TimeoutMS: ptr[int64](-1)}, FSRead: []string{"x"}})
	var bad []string
	for _, f := range fault.From(err).Fields {
		bad = append(bad, f.Field)
	}
	if !fault.Is(err, fault.InvalidRequest) || !slices.Equal(bad, []string{"policy_overrides.timeout_ms", "policy_overrides.fs.read"}) {
		t.Errorf("%v: %v", bad, err)
	}
}

// TestWithinKnowsEveryField: a request for another value than the session's is refused, whatever
// the field.
func TestWithinKnowsEveryField(t *testing.T) {
	r := resolver(t, policy.Config{Images: []string{"tools:1"}})
	session, err := r.Resolve(nil, policy.Layer{Limits: policy.Limits{
		TimeoutMS: ptr[int64](20_000), KillGraceMS: ptr[int64](1), MaxStdoutBytes: ptr[int64](2), MaxStderrBytes: ptr[int64](3),
		MaxArtifactsBytesTotal: ptr[int64](4), MemoryMB: ptr[int64](300), CPUCores: ptr(0.5), PIDs: ptr[int64](50), TmpMB: ptr[int64](20),
		ShmMB: ptr[int64](30), NetMaxBytes: ptr[int64](5), NetConnections: ptr[int64](6), NetMaxConnections: ptr[int64](7),
		NetIdleMS: ptr[int64](8),
	}, Image: ptr("tools:1"), FSRead: []string{"inputs/**"}, FSWrite: []string{"work/**"}}, policy.Host{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = session.Within(nil, policy.Defaults().Layer())
	var denied, want []string
	for _, f := range fault.From(err).Fields {
		denied = append(denied, f.Field)
	}
	for _, f := range policy.Describe() {
		if f.Name != policy.FieldNetMode && f.Name != policy.FieldRuntime { // which have one value, or none in a request
			want = append(want, f.Name)
		}
	}
	if !slices.Equal(denied, want) {
		t.Errorf("refused: %v\nall:     %v", denied, want)
	}
}

// TestWithinAManifest: a skill in a session has less time if its manifest says so, and the
// session's container, whose image and directories must be the manifest's.
func TestWithinAManifest(t *testing.T) {
	session, err := resolver(t, policy.Config{Images: []string{"tools:1"}}).Resolve(nil, policy.Layer{Limits: policy.Limits{
		TimeoutMS: ptr[int64](20_000), MaxStdoutBytes: ptr[int64](500),
	}}, policy.Host{})
	if err != nil {
		t.Fatal(err)
	}
	manifest := policy.Layer{
		FSRead: []string{"inputs/**"}, FSWrite: []string{"work/**", "artifacts/**"}, NetMode: ptr("none"),
		Limits: policy.Limits{TimeoutMS: ptr[int64](5000), MaxStdoutBytes: ptr[int64](501), MemoryMB: ptr[int64](16)},
	}
	got, err := session.Within(&manifest, policy.Layer{Limits: policy.Limits{KillGraceMS: ptr[int64](7)}})
	if err != nil {
		t.Fatal(err)
	}
	if v := got.Values; v.TimeoutMS != 5000 || v.MaxStdoutBytes != 500 || v.KillGraceMS != 7 || v.MemoryMB != session.Values.MemoryMB {
		t.Errorf("%+v", v)
	}
	if f := got.Fields["timeout_ms"]; f != (policy.Field{Value: int64(5000), Layer: "manifest", Ceiling: int64(20_000), CeilingFrom: "session"}) {
		t.Errorf("%+v", f)
	}
	for field, change := range map[string]func(*policy.Layer){
		"image":    func(l *policy.Layer) { l.Image = ptr("tools:1") },
		"fs.write": func(l *policy.Layer) { l.FSWrite = []string{"artifacts/**"} },
	} {
		other := manifest
		change(&other)
		_, err := session.Within(&other, policy.Layer{})
		if e := fault.From(err); e.Code != fault.PolicyDenied || len(e.Fields) != 1 || e.Fields[0].Field != field || e.Fields[0].Layer != "manifest" {
			t.Errorf("%s: %v", field, err)
		}
	}
}
