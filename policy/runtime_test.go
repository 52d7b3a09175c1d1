package policy_test

import (
	"encoding/json"
	"maps"
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

// first is the fields that every stored snapshot has.
var first = []string{
	"net.mode", "timeout_ms", "max_stdout_bytes", "max_stderr_bytes", "max_artifacts_bytes_total", "memory_mb", "cpu_cores", "pids", "tmp_mb",
	"image", "fs.read", "fs.write",
}

// before is each field that was added later, and what was in force before.
var before = map[string]any{
	"kill_grace_ms": int64(0), "shm_mb": int64(64), "runtime": "", "net.allow": []string{},
	"net.credentials": []policy.Credential{},
	"net.max_bytes":   int64(100 << 20), "net.connections": int64(64), "net.max_connections": int64(1000), "net.idle_ms": int64(60_000),
}

// Snapshots from before a field was added say what was in force then, and claim it only where it
// was enforced.
func TestSnapshotsFromBeforeAField(t *testing.T) {
	t.Parallel()
	s, _ := resolver(t, policy.Config{}).Resolve(nil, policy.Layer{}, policy.Host{})
	for _, name := range policy.Names() {
		if slices.Contains(first, name) {
			continue
		}
		was, ok := before[name]
		if !ok {
			t.Errorf("%s: write `later: true` and, for a number, `was` into its entry in fields.go: "+
				"the value that was in force before there was the field; then add the field and the value to before", name)
			continue
		}
		for where, stored := range map[string]policy.Snapshot{
			"an exec":                   s,
			"a sandbox's container":     s.AsEnforced(&policy.Container{ContainerLimits: s.Values.ContainerLimits, Image: s.Values.Image}),
			"a sandbox on some machine": s.AsEnforced(nil),
		} {
			want := was
			if slices.Contains(stored.NotEnforced, name) {
				want = nil
			}
			got, err := policy.ParseSnapshot(storedBefore(t, stored, name))
			if err != nil || !reflect.DeepEqual(got.Fields[name].Value, want) || slices.Contains(got.NotEnforced, name) != (want == nil) {
				t.Errorf("%s of %s: %v, %+v, not enforced %v; want %v, so `later` or `was` in fields.go is missing or wrong", name, where, err,
					got.Fields[name], got.NotEnforced, want)
			}
			if bad := policy.Check(got.Values.Layer(), ""); err == nil && where == "an exec" && len(bad) > 0 {
				t.Errorf("a replay from before %s asks for a value that is refused; `was` in fields.go is what was in force then: %+v", name, bad)
			}
		}
	}
}

// storedBefore is a stored snapshot from before there was the field.
func storedBefore(t *testing.T, s policy.Snapshot, name string) []byte {
	t.Helper()
	s.Fields = maps.Clone(s.Fields)
	delete(s.Fields, name)
	s.NotEnforced = slices.DeleteFunc(slices.Clone(s.NotEnforced), func(n string) bool { return n == name })
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
