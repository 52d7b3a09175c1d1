package policy_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/policy"
)

// The runtime is the operator's: the settings set it, and there is no layer after them that could.
func TestRuntimeOnlyFromSettings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]policy.Field{
		"":     {Value: "", Layer: "default", Ceiling: "", CeilingFrom: "default"},
		"crun": {Value: "crun", Layer: "settings", Ceiling: "crun", CeilingFrom: "settings"},
	} {
		s, err := resolver(t, policy.Config{Runtime: name}).Resolve(&policy.Layer{Limits: policy.Limits{PIDs: ptr(int64(20))}},
			policy.Layer{Limits: policy.Limits{PIDs: ptr(int64(30))}}, policy.Host{})
		if err != nil {
			t.Fatal(err)
		}
		if f := s.Fields["runtime"]; !reflect.DeepEqual(f, want) || s.Values.Runtime != name {
			t.Errorf("%q: %+v, in Values %q", name, f, s.Values.Runtime)
		}
	}
}

func TestRuntimeNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"runc", "crun", "runsc-kvm", "io.containerd.runsc.v1", "a_b", "7", strings.Repeat("a", 64)} {
		if _, err := policy.New(policy.Config{Runtime: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{" ", "-v", "--privileged", ".crun", "/usr/bin/crun", "a b", "a\nb", "a=b", "crün", "a,b", "a\x00", strings.Repeat("a", 65)} {
		_, err := policy.New(policy.Config{Runtime: name})
		fields := fault.From(err).Fields
		if !fault.Is(err, fault.InvalidSettings) || len(fields) != 1 || fields[0].Field != "sandbox.runtime" ||
			!strings.Contains(fields[0].Reason, "docker info") {
			t.Errorf("%q: %v %+v", name, err, fields)
		}
	}
}

// A snapshot from before the runtime was part of the policy is complete; one with half a runtime is
// invalid.
func TestSnapshotsFromBeforeTheRuntime(t *testing.T) {
	t.Parallel()
	s, _ := resolver(t, policy.Config{SettingsDigest: "sha256:x"}).Resolve(nil, policy.Layer{}, policy.Host{})
	want := s
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]map[string]any
	if err := json.Unmarshal([]byte(strings.Replace(string(data), `"settings_digest":"sha256:x"`, `"settings_digest":{}`, 1)), &stored); err != nil {
		t.Fatal(err)
	}
	again := func(runtime any) (policy.Snapshot, error) {
		delete(stored["fields"], "runtime")
		if runtime != nil {
			stored["fields"]["runtime"] = runtime
		}
		data, err := json.Marshal(map[string]any{"fields": stored["fields"], "settings_digest": "sha256:x"})
		if err != nil {
			t.Fatal(err)
		}
		return policy.ParseSnapshot(data)
	}
	if got, err := again(nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
	for _, broken := range []any{
		map[string]any{},
		map[string]any{"value": 1, "ceiling": "", "layer": "default", "ceiling_from": "default"},
		map[string]any{"value": "crun"},
		"crun",
	} {
		if got, err := again(broken); err == nil {
			t.Errorf("%v was taken for a runtime: %+v", broken, got.Fields["runtime"])
		}
	}
}

// Snapshots from before a field was added say what was in force then, and claim it only where it
// was enforced.
func TestSnapshotsFromBeforeAField(t *testing.T) {
	t.Parallel()
	s, _ := resolver(t, policy.Config{}).Resolve(nil, policy.Layer{}, policy.Host{})
	for name, c := range map[string]struct {
		stored policy.Snapshot
		shm    any
	}{
		"of an exec":                   {s, int64(64)},
		"of a sandbox's container":     {s.AsEnforced(&policy.Container{ContainerLimits: s.Values.ContainerLimits, Image: s.Values.Image}), int64(64)},
		"of a sandbox on some machine": {s.AsEnforced(nil), nil},
	} {
		data, err := json.Marshal(c.stored)
		if err != nil {
			t.Fatal(err)
		}
		var old map[string]any
		if err := json.Unmarshal(data, &old); err != nil {
			t.Fatal(err)
		}
		delete(old["fields"].(map[string]any), "shm_mb")
		if list, ok := old["not_enforced"].([]any); ok {
			old["not_enforced"] = slices.DeleteFunc(list, func(v any) bool { return v == "shm_mb" })
		}
		if data, err = json.Marshal(old); err != nil {
			t.Fatal(err)
		}
		got, err := policy.ParseSnapshot(data)
		if err != nil || got.Fields["shm_mb"].Value != c.shm || slices.Contains(got.NotEnforced, "shm_mb") != (c.shm == nil) {
			t.Errorf("%s: %v, %+v, not enforced %v", name, err, got.Fields["shm_mb"], got.NotEnforced)
		}
	}
}
