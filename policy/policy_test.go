package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"secbox/fault"
	"secbox/policy"
)

func ptr[T any](v T) *T { return &v }

// leaves returns the fields of a struct. It replaces each embedded struct by its fields.
func leaves(typ reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(typ), func(f reflect.StructField) bool { return f.Anonymous })
}

// set puts a value into the layer's field of that public name.
func set(t rapid.TB, l *policy.Layer, name string, value any) {
	t.Helper()
	v := reflect.ValueOf(l).Elem()
	for _, f := range leaves(v.Type()) {
		if public, _, _ := strings.Cut(f.Tag.Get("json"), ","); public != name {
			continue
		}
		into := v.FieldByIndex(f.Index)
		if into.Kind() == reflect.Pointer {
			p := reflect.New(into.Type().Elem())
			p.Elem().Set(reflect.ValueOf(value))
			into.Set(p)
		} else {
			into.Set(reflect.ValueOf(value))
		}
		return
	}
	t.Fatalf("no field %s in Layer", name)
}

// valueOf is the value of the field of that public name.
func valueOf(t *testing.T, v policy.Values, name string) any {
	t.Helper()
	rv := reflect.ValueOf(v)
	for _, f := range leaves(rv.Type()) {
		if f.Tag.Get("json") == name {
			return rv.FieldByIndex(f.Index).Interface()
		}
	}
	t.Fatalf("no field %s in Values", name)
	return nil
}

// fieldCase is one field with words that its layers may and may not say.
type fieldCase struct {
	name        string
	def         any
	ceiling     any
	good, other any   // allowed, different from the default and from each other
	above       any   // a violation
	invalid     []any // never meant
}

var fieldCases = []fieldCase{
	{"net.mode", "none", "none", "none", "none", "host", []any{""}},
	{
		"net.allow",
		[]string{},
		[]string{},
		[]string{},
		[]string{},
		[]string{"api.example.org"},
		[]any{
			[]string{""},
			[]string{"*"},
			[]string{"*.org"},
			[]string{"a b"},
			[]string{"127.1"},
			[]string{"0x7f000001"},
			[]string{"example.org:0"},
			[]string{"example.org:65536"},
			[]string{"https://example.org"},
			[]string{"exämple.org"},
			[]string{"[::1"},
			[]string{"a*.example.org"},
			[]string{strings.Repeat("a", 64) + ".org"},
			[]string{strings.Repeat("a.", 130) + "org"},
		},
	},
	{
		"net.credentials",
		[]policy.Credential{},
		[]string{},
		[]policy.Credential{},
		[]policy.Credential{},
		[]policy.Credential{{Secret: "key", Host: "api.example.org", Basic: "me"}},
		[]any{
			credential("", "a.example.org", "X-Key"), credential("A", "a.example.org", "X-Key"), credential("a", "", "X-Key"),
			credential("a", "192.0.2.7", "X-Key"), credential("a", "*.org", "X-Key"), credential("a", "a.example.org", ""),
			credential("a", "a.example.org", "Host"), credential("a", "a.example.org", "origin"), credential("a", "a.example.org", "X-Key:"),
			credential("a", "a.example.org", "X-Key\r\nX"), credential("a", "a.example.org", "X-Key: a\r\nb"),
			credential("a", "a.example.org", "Content-Length"), credential("a", "a.example.org", "Proxy-Authorization"),
			[]policy.Credential{{Secret: "a", Host: "a.example.org", Basic: "me:"}},
			[]policy.Credential{{Secret: "a", Host: "a.example.org", Query: "a&b"}},
			[]policy.Credential{{Secret: "a", Host: "a.example.org", Basic: "me", Query: "key"}},
			make([]policy.Credential, 17),
		},
	},
	{"timeout_ms", int64(60000), int64(1800000), int64(5), int64(1800000), int64(1800001), []any{int64(0), int64(-1), int64(math.MinInt64)}},
	{"kill_grace_ms", int64(2000), int64(60000), int64(0), int64(60000), int64(60001), []any{int64(-1)}},
	{"max_stdout_bytes", int64(1048576), int64(16777216), int64(1), int64(16777216), int64(16777217), []any{int64(0), int64(-1)}},
	{"max_stderr_bytes", int64(1048576), int64(16777216), int64(1), int64(16777216), int64(16777217), []any{int64(0), int64(-1)}},
	{"max_artifacts_bytes_total", int64(52428800), int64(1 << 30), int64(1), int64(1 << 30), int64(1<<30 + 1), []any{int64(0), int64(-1)}},
	{"memory_mb", int64(1024), int64(8192), int64(16), int64(8192), int64(8193), []any{int64(0), int64(-1), int64(15)}},
	{"cpu_cores", 1.0, 4.0, 0.01, 4.0, 4.001, []any{0.0, -1.0, 0.009, math.NaN(), math.Inf(1), math.Inf(-1)}},
	{"pids", int64(256), int64(4096), int64(16), int64(4096), int64(math.MaxInt64), []any{int64(0), int64(-1), int64(15)}},
	{"tmp_mb", int64(256), int64(4096), int64(1), int64(4096), int64(4097), []any{int64(0), int64(-1)}},
	{"shm_mb", int64(1024), int64(8192), int64(64), int64(8192), int64(8193), []any{int64(0), int64(-1)}},
	{"net.max_bytes", int64(100 << 20), int64(1 << 30), int64(1), int64(1 << 30), int64(1<<30 + 1), []any{int64(0), int64(-1)}},
	{"net.connections", int64(64), int64(256), int64(1), int64(256), int64(257), []any{int64(0), int64(-1)}},
	{"net.max_connections", int64(1000), int64(10000), int64(1), int64(10000), int64(10001), []any{int64(0), int64(-1)}},
	{"net.idle_ms", int64(60000), int64(3600000), int64(1), int64(3600000), int64(3600001), []any{int64(0), int64(-1)}},
	{
		"image", "secbox-sandbox:latest",
		[]string{"secbox-sandbox:latest", "a:1", "b:2"},
		"a:1", "b:2", "evil:1",
		[]any{"", "--privileged", "a b", "a\nb", strings.Repeat("a", 600)},
	},
	{
		"fs.read",
		[]string{"inputs/**", "work/**", "artifacts/**"},
		[]string{"inputs/**", "work/**", "artifacts/**"},
		[]string{"inputs/**", "work/**"},
		[]string{},
		nil,
		[]any{[]string{"/etc/**"}, []string{"inputs/../**"}, []string{""}, []string{"inputs/*"}, []string{"inputs/a/**"}},
	},
	{
		"fs.write",
		[]string{"work/**", "artifacts/**"},
		[]string{"work/**", "artifacts/**"},
		[]string{"artifacts/**"},
		[]string{},
		[]string{"inputs/**"},
		[]any{[]string{"inputs"}, []string{"../**"}},
	},
}

func credential(secret, host, header string) []policy.Credential {
	return []policy.Credential{{Secret: secret, Host: host, Header: header}}
}

func resolver(t *testing.T, cfg policy.Config) *policy.Resolver {
	t.Helper()
	r, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var imagesAB = []string{"a:1", "b:2"}

func TestTableHasEveryField(t *testing.T) {
	t.Parallel()
	var tested []string
	for _, c := range fieldCases {
		tested = append(tested, c.name)
	}
	all := append(slices.Clone(tested), "runtime") // which no layer may set: runtime_test.go
	if !slices.Equal(all, policy.Names()) {
		t.Fatalf("tested %v\nfields %v", all, policy.Names())
	}
	for typ, want := range map[reflect.Type][]string{reflect.TypeFor[policy.Layer](): tested, reflect.TypeFor[policy.Values](): all} {
		var tags []string
		for _, f := range leaves(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			tags = append(tags, name)
		}
		if !slices.Equal(tags, want) {
			t.Errorf("%s has fields %v, want %v", typ, tags, want)
		}
	}
}

// Every field in every layer: the value gets through, the layer is named, and the ceiling with
// where it came from is there.
func TestEveryFieldInEveryLayer(t *testing.T) {
	t.Parallel()
	for _, c := range fieldCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asSettings, asManifest, asRequest policy.Layer
			set(t, &asSettings, c.name, c.good)
			set(t, &asManifest, c.name, c.good)
			set(t, &asRequest, c.name, c.good)
			for _, step := range []struct {
				layer             string
				settings          policy.Layer
				manifest          *policy.Layer
				request           policy.Layer
				want, wantCeiling any
			}{
				{"default", policy.Layer{}, nil, policy.Layer{}, c.def, c.ceiling},
				{"settings", asSettings, &policy.Layer{}, policy.Layer{}, c.good, c.ceiling},
				{"manifest", policy.Layer{}, &asManifest, policy.Layer{}, c.good, c.ceiling},
				{"request", asSettings, &asManifest, asRequest, c.good, c.ceiling},
			} {
				if step.layer == "settings" && c.name == "net.credentials" { // the settings have the secrets, and ask for none
					continue
				}
				s, err := resolver(t, policy.Config{Settings: step.settings, Images: imagesAB, SettingsDigest: "sha256:d"}).
					Resolve(step.manifest, step.request, policy.Host{})
				if err != nil {
					t.Fatalf("%s: %v", step.layer, err)
				}
				f := s.Fields[c.name]
				if strings.HasPrefix(c.name, "fs.") && step.settings.FSRead != nil || step.settings.FSWrite != nil {
					step.wantCeiling = c.good // the settings' list is the most that others may have
				}
				if !reflect.DeepEqual(f.Value, step.want) || !reflect.DeepEqual(valueOf(t, s.Values, c.name), step.want) {
					t.Errorf("%s: value %v, in Values %v; want %v", step.layer, f.Value, valueOf(t, s.Values, c.name), step.want)
				}
				if f.Layer != step.layer || !reflect.DeepEqual(f.Ceiling, step.wantCeiling) || f.ClampedFrom != nil {
					t.Errorf("%s: %+v; want ceiling %v", step.layer, f, step.wantCeiling)
				}
				if s.SettingsDigest != "sha256:d" || len(s.Fields) != len(policy.Names()) {
					t.Errorf("%s: digest %q, %d fields", step.layer, s.SettingsDigest, len(s.Fields))
				}
			}
		})
	}
}

// The default of /dev/shm is the memory limit, whichever layer sets that, up to its own ceiling.
func TestSharedMemoryFollowsMemory(t *testing.T) {
	t.Parallel()
	memory := func(n int64) policy.Layer { return policy.Layer{Limits: policy.Limits{MemoryMB: &n}} }
	for name, c := range map[string]struct {
		cfg      policy.Config
		manifest policy.Layer
		request  policy.Layer
		host     policy.Host
		want     int64
		layer    string
	}{
		"default":               {want: 1024, layer: "default"},
		"memory by settings":    {cfg: policy.Config{Settings: memory(2048)}, want: 2048, layer: "default"},
		"memory by a manifest":  {manifest: memory(300), want: 300, layer: "default"},
		"memory by the request": {manifest: memory(300), request: memory(4096), want: 4096, layer: "default"},
		"a small host":          {host: policy.Host{MemoryMB: 512}, want: 512, layer: "default"},
		"a low ceiling":         {cfg: policy.Config{Ceiling: policy.Limits{ShmMB: ptr(int64(100))}}, want: 100, layer: "default"},
		"its own value": {
			cfg: policy.Config{Settings: policy.Layer{Limits: policy.Limits{ShmMB: ptr(int64(64))}}}, request: memory(4096), want: 64, layer: "settings",
		},
		"refused memory": {request: memory(1 << 20), want: 1024, layer: "default"},
	} {
		s, _ := resolver(t, c.cfg).Resolve(&c.manifest, c.request, c.host)
		if f := s.Fields["shm_mb"]; s.Values.ShmMB != c.want || f.Value != c.want || f.Layer != c.layer || f.ClampedFrom != nil {
			t.Errorf("%s: %d, %+v", name, s.Values.ShmMB, f)
		}
	}
}

// The default of the grace is a part of the timeout, and zero is a value.
func TestKillGraceFollowsTheTimeout(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[int64]int64{5: 0, 500: 50, 19_990: 1999, 60_000: 2000, 1_800_000: 2000} {
		s, err := resolver(t, policy.Config{}).Resolve(nil, policy.Layer{Limits: policy.Limits{TimeoutMS: &timeout}}, policy.Host{})
		if err != nil || s.Values.KillGraceMS != want {
			t.Errorf("timeout_ms=%d: %d, want %d (%v)", timeout, s.Values.KillGraceMS, want, err)
		}
	}
	s, err := resolver(t, policy.Config{}).Resolve(nil, policy.Layer{Limits: policy.Limits{KillGraceMS: ptr(int64(0))}}, policy.Host{})
	if err != nil || s.Values.KillGraceMS != 0 || s.Fields["kill_grace_ms"].Layer != "request" {
		t.Errorf("%+v %v", s.Fields["kill_grace_ms"], err)
	}
}

// A later layer that may replace earlier ones does.
func TestLaterLayerReplacesEarlier(t *testing.T) {
	t.Parallel()
	for _, c := range fieldCases {
		if c.name == "net.mode" {
			continue
		}
		var settings, manifest, request policy.Layer
		set(t, &settings, c.name, c.good)
		set(t, &manifest, c.name, c.good)
		set(t, &request, c.name, c.other)
		s, err := resolver(t, policy.Config{Settings: settings, Images: imagesAB}).Resolve(&manifest, request, policy.Host{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if f := s.Fields[c.name]; f.Layer != "request" || !reflect.DeepEqual(f.Value, c.other) {
			t.Errorf("%s: %+v, want %v of request", c.name, f, c.other)
		}
	}
}

func TestEveryViolationInEveryLayer(t *testing.T) {
	t.Parallel()
	for _, c := range fieldCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			above := c.above
			cfg := policy.Config{Images: imagesAB}
			wantCeiling := c.ceiling
			if c.name == "fs.read" { // everything is readable by default: narrow first
				cfg.Settings = policy.Layer{FSRead: []string{"inputs/**"}, FSWrite: []string{}}
				above, wantCeiling = []string{"work/**"}, []string{"inputs/**"}
			}
			r := resolver(t, cfg)
			var bad policy.Layer
			set(t, &bad, c.name, above)
			before, _ := r.Resolve(nil, policy.Layer{}, policy.Host{})
			for _, layer := range []string{"manifest", "request"} {
				var manifest *policy.Layer
				var request policy.Layer
				if layer == "manifest" {
					manifest = &bad
				} else {
					request = bad
				}
				s, err := r.Resolve(manifest, request, policy.Host{})
				if !fault.Is(err, fault.PolicyDenied) {
					t.Fatalf("%s: got %v", layer, err)
				}
				f := fault.From(err).Fields
				if len(f) != 1 || f[0].Field != c.name || f[0].Layer != layer || !reflect.DeepEqual(f[0].Asked, above) ||
					!reflect.DeepEqual(f[0].Ceiling, wantCeiling) {
					t.Fatalf("%s: %+v", layer, f)
				}
				if !strings.Contains(f[0].Reason, "ask for") || len(f[0].Reason) > 400 {
					t.Errorf("%s: the reason has no remedy: %s", layer, f[0].Reason)
				}
				if !reflect.DeepEqual(s, before) {
					t.Errorf("%s: the snapshot of a refusal is not that of the layers before:\n%+v\n%+v", layer, s, before)
				}
			}
			// In the settings it is a mistake of the operator's.
			if c.name == "fs.read" || c.name == "net.allow" || c.name == "net.credentials" { // the settings are their first layer
				return
			}
			_, err := policy.New(policy.Config{Settings: bad, Images: imagesAB})
			if !fault.Is(err, fault.InvalidSettings) || fault.From(err).Fields[0].Field != "sandbox.policy."+c.name {
				t.Errorf("settings: got %v", err)
			}
		})
	}
}

// TestResultWithinCeiling: where a request replaces what the manifest says, only the request
// counts.
func TestResultWithinCeiling(t *testing.T) {
	t.Parallel()
	r := resolver(t, policy.Config{
		Settings: policy.Layer{Limits: policy.Limits{MemoryMB: ptr(int64(512))}}, Ceiling: policy.Limits{MemoryMB: ptr(int64(700))},
		Images: imagesAB,
	})
	manifest := &policy.Layer{Limits: policy.Limits{MemoryMB: ptr(int64(1024)), CPUCores: ptr(0.5)}, Image: ptr("foreign:1")}
	own := policy.Layer{Limits: policy.Limits{MemoryMB: ptr(int64(300))}, Image: ptr(policy.DefaultImage)}
	s, err := r.Resolve(manifest, own, policy.Host{})
	if err != nil || s.Values.MemoryMB != 300 || s.Fields["memory_mb"].Layer != "request" || s.Fields["cpu_cores"].Layer != "manifest" {
		t.Errorf("%v: %+v", err, s)
	}
	for name, c := range map[string]struct {
		memory *int64
		layer  string
		asked  int64
	}{"the manifest's": {nil, "manifest", 1024}, "the request's": {ptr(int64(800)), "request", 800}} {
		_, err := r.Resolve(manifest, policy.Layer{Limits: policy.Limits{MemoryMB: c.memory}, Image: own.Image}, policy.Host{})
		if f := fault.From(err).Fields; !fault.Is(err, fault.PolicyDenied) || len(f) != 1 || f[0].Layer != c.layer || f[0].Asked != c.asked ||
			f[0].Ceiling != int64(700) {
			t.Errorf("%s: %v, %+v", name, err, f)
		}
	}
	// Directories only narrow, so that a request cannot narrow an excessive manifest.
	narrow := resolver(t, policy.Config{Settings: policy.Layer{FSWrite: []string{"artifacts/**"}}})
	_, err = narrow.Resolve(&policy.Layer{FSWrite: []string{"work/**"}}, policy.Layer{FSWrite: []string{}}, policy.Host{})
	if f := fault.From(err).Fields; len(f) != 1 || f[0].Layer != "manifest" {
		t.Errorf("%v", err)
	}
}

func TestInvalidValuesInEveryLayer(t *testing.T) {
	t.Parallel()
	r := resolver(t, policy.Config{Images: imagesAB})
	before, _ := r.Resolve(nil, policy.Layer{}, policy.Host{})
	for _, c := range fieldCases {
		for _, value := range c.invalid {
			t.Run(fmt.Sprintf("%s=%.40q", c.name, fmt.Sprint(value)), func(t *testing.T) {
				t.Parallel()
				var bad policy.Layer
				set(t, &bad, c.name, value)
				check := func(field string, code fault.Code, err error) {
					t.Helper()
					if !fault.Is(err, code) {
						t.Fatalf("got %v, want %s", err, code)
					}
					if f := fault.From(err).Fields; len(f) != 1 || f[0].Field != field || f[0].Reason == "" || f[0].Asked != nil {
						t.Fatalf("fields %+v, want one of %s", f, field)
					}
				}
				s, err := r.Resolve(nil, bad, policy.Host{})
				check("policy_overrides."+c.name, fault.InvalidRequest, err)
				if !reflect.DeepEqual(s, before) {
					t.Error("an invalid value changed the snapshot")
				}
				_, err = r.Resolve(&bad, policy.Layer{}, policy.Host{})
				check("manifest."+c.name, fault.InvalidRequest, err)
				_, err = policy.New(policy.Config{Settings: bad, Images: imagesAB})
				check("sandbox.policy."+c.name, fault.InvalidSettings, err)
			})
		}
	}
}

func TestAllViolationsComeAtOnce(t *testing.T) {
	t.Parallel()
	r := resolver(t, policy.Config{})
	s, err := r.Resolve(
		&policy.Layer{Limits: policy.Limits{MemoryMB: ptr(int64(9000)), PIDs: ptr(int64(32))}},
		policy.Layer{
			Limits: policy.Limits{TimeoutMS: ptr(int64(1 << 40)), CPUCores: ptr(0.5)}, NetMode: ptr("host"), FSWrite: []string{"inputs/**", "work/**"},
			Image: ptr("evil"),
		},
		policy.Host{})
	var got []string
	for _, f := range fault.From(err).Fields {
		got = append(got, f.Layer+" "+f.Field)
	}
	want := []string{"manifest memory_mb", "request net.mode", "request timeout_ms", "request image", "request fs.write"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	if s.Values.PIDs != 32 || s.Values.CPUCores != 0.5 || s.Values.MemoryMB != 1024 || s.Fields["pids"].Layer != "manifest" {
		t.Errorf("an allowed value is not in the snapshot: %+v", s.Values)
	}
	for _, name := range []string{"memory_mb", "net.mode", "image"} {
		if !strings.Contains(fault.From(err).Message, name) {
			t.Errorf("the message does not name %s: %s", name, fault.From(err).Message)
		}
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  policy.Config
		want []string
	}{
		"ceiling under the default": {policy.Config{Ceiling: policy.Limits{TimeoutMS: ptr(int64(30000))}}, []string{"sandbox.policy_ceiling.timeout_ms"}},
		"value over the set ceiling": {policy.Config{
			Settings: policy.Layer{Limits: policy.Limits{MemoryMB: ptr(int64(600))}},
			Ceiling:  policy.Limits{MemoryMB: ptr(int64(512))},
		}, []string{"sandbox.policy.memory_mb"}},
		"value over the default ceiling": {
			policy.Config{Settings: policy.Layer{Limits: policy.Limits{CPUCores: ptr(4.5)}}},
			[]string{"sandbox.policy.cpu_cores"},
		},
		"ceiling not positive": {
			policy.Config{Ceiling: policy.Limits{PIDs: ptr(int64(0)), CPUCores: ptr(math.NaN())}},
			[]string{"sandbox.policy_ceiling.cpu_cores", "sandbox.policy_ceiling.pids"},
		},
		"ceiling beyond reason": {
			policy.Config{Ceiling: policy.Limits{MemoryMB: ptr(int64(math.MaxInt64)), TimeoutMS: ptr(int64(math.MaxInt64))}},
			[]string{"sandbox.policy_ceiling.timeout_ms", "sandbox.policy_ceiling.memory_mb"},
		},
		"image not on the list":          {policy.Config{Settings: policy.Layer{Image: ptr("c:3")}, Images: imagesAB}, []string{"sandbox.policy.image"}},
		"a list with no reference in it": {policy.Config{Images: []string{"a:1", "-v", ""}}, []string{"sandbox.images[1]", "sandbox.images[2]"}},
		"write to the inputs":            {policy.Config{Settings: policy.Layer{FSWrite: []string{"inputs/**"}}}, []string{"sandbox.policy.fs.write"}},
		"a network":                      {policy.Config{Settings: policy.Layer{NetMode: ptr("bridge")}}, []string{"sandbox.policy.net.mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.New(c.cfg)
			if !fault.Is(err, fault.InvalidSettings) {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, f := range fault.From(err).Fields {
				got = append(got, f.Field)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("fields %v, want %v", got, c.want)
			}
		})
	}
}

func TestImagesThatAreAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own    *string
		images []string
		want   []string
	}{
		{nil, nil, []string{policy.DefaultImage}},
		{ptr("own:1"), nil, []string{policy.DefaultImage, "own:1"}},
		{ptr("a:1"), imagesAB, []string{policy.DefaultImage, "a:1", "b:2"}},
		{ptr(policy.DefaultImage), imagesAB, []string{policy.DefaultImage, "a:1", "b:2"}},
		{nil, []string{"b:2", policy.DefaultImage, "b:2"}, []string{policy.DefaultImage, "b:2"}},
	} {
		r := resolver(t, policy.Config{Settings: policy.Layer{Image: c.own}, Images: c.images})
		if got := r.Images(); !slices.Equal(got, c.want) {
			t.Errorf("%v with %v: allowed %v, want %v", c.own, c.images, got, c.want)
		}
		r.Images()[0] = "evil"
		if r.Images()[0] == "evil" {
			t.Error("the list can be changed from outside")
		}
	}
}

func TestHostBoundsCPUAndMemory(t *testing.T) {
	t.Parallel()
	host := policy.Host{CPUs: 2, MemoryMB: 512}
	r := resolver(t, policy.Config{Settings: policy.Layer{Limits: policy.Limits{CPUCores: ptr(3.5)}}, Ceiling: policy.Limits{MemoryMB: ptr(int64(65536))}})
	s, err := r.Resolve(nil, policy.Layer{}, host)
	if err != nil {
		t.Fatal(err)
	}
	if want := (policy.Field{Value: 2.0, Layer: "settings", Ceiling: 2.0, CeilingFrom: "host", ClampedFrom: 3.5}); !reflect.DeepEqual(s.Fields["cpu_cores"],
		want) || s.Values.CPUCores != 2 {
		t.Errorf("cpu_cores %+v", s.Fields["cpu_cores"])
	}
	if want := (policy.Field{
		Value: int64(512), Layer: "default", Ceiling: int64(512), CeilingFrom: "host",
		ClampedFrom: int64(1024),
	}); !reflect.DeepEqual(s.Fields["memory_mb"], want) || s.Values.MemoryMB != 512 {
		t.Errorf("memory_mb %+v", s.Fields["memory_mb"])
	}
	if f := s.Fields["pids"]; f.CeilingFrom != "default" {
		t.Errorf("pids %+v", f)
	}

	_, err = r.Resolve(&policy.Layer{Limits: policy.Limits{CPUCores: ptr(2.5)}}, policy.Layer{Limits: policy.Limits{MemoryMB: ptr(int64(513))}}, host)
	e := fault.From(err)
	if !fault.Is(err, fault.PolicyDenied) || len(e.Fields) != 2 {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(e.Fields[0].Reason, "machine has 2 CPUs") || !strings.Contains(e.Fields[1].Reason, "machine has 512 MiB") {
		t.Errorf("reasons: %s / %s", e.Fields[0].Reason, e.Fields[1].Reason)
	}

	s, err = r.Resolve(nil, policy.Layer{Limits: policy.Limits{CPUCores: ptr(2.0), MemoryMB: ptr(int64(512))}}, host)
	if err != nil || s.Fields["cpu_cores"].ClampedFrom != nil || s.Fields["cpu_cores"].Layer != "request" {
		t.Errorf("exactly the host's own: %v, %+v", err, s.Fields["cpu_cores"])
	}

	s, _ = r.Resolve(nil, policy.Layer{}, policy.Host{CPUs: 64, MemoryMB: 1 << 20})
	if f := s.Fields["memory_mb"]; f.Ceiling != int64(65536) || f.CeilingFrom != "settings" {
		t.Errorf("a large host raised or renamed a ceiling: %+v", f)
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	none := []string{}
	for _, c := range []struct {
		name              string
		manifest, request policy.Layer
		want              string
	}{
		{"all by default", policy.Layer{}, policy.Layer{}, "inputs:ro,work:rw,artifacts:rw"},
		{"nothing at all", policy.Layer{}, policy.Layer{FSRead: none, FSWrite: none}, "inputs:none,work:none,artifacts:none"},
		{"read-only", policy.Layer{FSWrite: none}, policy.Layer{}, "inputs:ro,work:ro,artifacts:ro"},
		{"a write brings its read", policy.Layer{FSRead: none}, policy.Layer{}, "inputs:none,work:rw,artifacts:rw"},
		{"only results", policy.Layer{FSRead: []string{"inputs/**"}, FSWrite: []string{"artifacts/**"}}, policy.Layer{}, "inputs:ro,work:none,artifacts:rw"},
		{
			"a writable directory may be asked for reading",
			policy.Layer{FSRead: none, FSWrite: []string{"work/**"}},
			policy.Layer{FSRead: []string{"work/**"}, FSWrite: none},
			"inputs:none,work:ro,artifacts:none",
		},
		{
			"doubles and order do not matter",
			policy.Layer{FSRead: []string{"work/**", "inputs/**", "work/**"}, FSWrite: none},
			policy.Layer{},
			"inputs:ro,work:ro,artifacts:none",
		},
	} {
		s, err := resolver(t, policy.Config{}).Resolve(&c.manifest, c.request, policy.Host{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := s.Values.MountModes().String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEmptyListInJSON(t *testing.T) {
	t.Parallel()
	data, _ := json.Marshal(policy.Layer{FSRead: []string{}})
	if string(data) != `{"fs.read":[]}` {
		t.Fatalf("%s: an empty list says that nothing may be read, and must not become silence", data)
	}
	var l policy.Layer
	if err := json.Unmarshal(data, &l); err != nil || l.FSRead == nil || l.FSWrite != nil {
		t.Fatalf("%v %+v", err, l)
	}
}

func TestResolverKeepsNoCallerData(t *testing.T) {
	t.Parallel()
	settings := policy.Layer{Limits: policy.Limits{TimeoutMS: ptr(int64(5))}, FSRead: []string{"inputs/**"}}
	ceiling := policy.Limits{PIDs: ptr(int64(300))}
	request := policy.Layer{FSWrite: []string{"work/**"}}
	r := resolver(t, policy.Config{Settings: settings, Ceiling: ceiling})
	*settings.TimeoutMS, settings.FSRead[0], *ceiling.PIDs = 6, "work/**", 400
	s, _ := r.Resolve(nil, request, policy.Host{})
	request.FSWrite[0] = "inputs/**"
	s.Values.FSRead[0], s.Values.FSWrite[0] = "changed", "changed"
	again, _ := r.Resolve(nil, policy.Layer{}, policy.Host{})
	if again.Values.TimeoutMS != 5 || again.Values.FSRead[0] != "inputs/**" || again.Fields["pids"].Ceiling != int64(300) {
		t.Fatalf("%+v", again)
	}
	if s.Fields["fs.read"].Value.([]string)[0] != "inputs/**" || s.Fields["fs.write"].Value.([]string)[0] != "work/**" {
		t.Fatal("Values and Fields share their memory")
	}
}

func TestStoredSnapshots(t *testing.T) {
	t.Parallel()
	r := resolver(t, policy.Config{SettingsDigest: "sha256:x", Settings: policy.Layer{Limits: policy.Limits{CPUCores: ptr(2.0)}}})
	s, _ := r.Resolve(nil, policy.Layer{Limits: policy.Limits{CPUCores: ptr(0.3)}, FSWrite: []string{}}, policy.Host{CPUs: 1, MemoryMB: 100})
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := policy.ParseSnapshot(data)
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Fatalf("%v\n%+v\n%+v", err, got, s)
	}
	text := string(data)
	for name, broken := range map[string]string{
		"no JSON":             `{`,
		"nothing":             `{}`,
		"null":                `null`,
		"a field less":        strings.Replace(text, `"pids"`, `"pidz"`, 1),
		"a field more":        strings.Replace(text, `"fields":{`, `"fields":{"gpu":{"value":1,"layer":"request","ceiling":1,"ceiling_from":"default"},`, 1),
		"a value of no type":  strings.Replace(text, `"value":256`, `"value":"256"`, 1),
		"a value of null":     strings.Replace(text, `"value":256`, `"value":null`, 1),
		"a fraction of a PID": strings.Replace(text, `"value":256`, `"value":256.5`, 1),
		"beyond int64":        strings.Replace(text, `"value":256`, `"value":99999999999999999999`, 1),
		"no ceiling":          strings.ReplaceAll(text, `"ceiling":`, `"sky":`),
	} {
		if broken == text {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if _, err := policy.ParseSnapshot([]byte(broken)); err == nil {
			t.Errorf("%s was taken for a snapshot", name)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	defaults := policy.Defaults()
	for _, d := range policy.Describe() {
		if d.Name == policy.FieldRuntime {
			continue
		}
		i := slices.IndexFunc(fieldCases, func(c fieldCase) bool { return c.name == d.Name })
		if i < 0 {
			t.Errorf("fieldCases lacks %s", d.Name)
			continue
		}
		c := fieldCases[i]
		if !reflect.DeepEqual(d.Default, c.def) || !reflect.DeepEqual(valueOf(t, defaults, c.name), c.def) {
			t.Errorf("%s: default %v, want %v", c.name, d.Default, c.def)
		}
		if _, list := c.ceiling.([]string); d.Ceiling != nil && d.Ceiling != c.ceiling || d.Ceiling == nil && !list && c.name != policy.FieldNetMode {
			t.Errorf("%s: ceiling %v, want %v", c.name, d.Ceiling, c.ceiling)
		}
	}
}

// TestAsEnforced stores what holds of a policy where a command runs, and reads it again.
func TestAsEnforced(t *testing.T) {
	t.Parallel()
	r, err := policy.New(policy.Config{SettingsDigest: "abc"})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := r.Resolve(nil, policy.Layer{}, policy.Host{})
	if err != nil {
		t.Fatal(err)
	}
	bare := whole.AsEnforced(nil)
	if len(bare.Fields) != 3 || len(bare.NotEnforced) != len(policy.Names())-3 ||
		!reflect.DeepEqual(bare.Fields[policy.FieldTimeoutMS], whole.Fields[policy.FieldTimeoutMS]) {
		t.Errorf("without a container %v holds, and not %v", bare.Fields, bare.NotEnforced)
	}
	has := whole.Values.ContainerLimits
	has.PIDs = 800
	s := whole.AsEnforced(&policy.Container{ContainerLimits: has, Image: policy.DefaultImage})
	if len(s.Fields) != len(policy.Names())-2 || !slices.Equal(s.NotEnforced, []string{"kill_grace_ms", "max_artifacts_bytes_total"}) {
		t.Errorf("holds %v, and not %v", s.Fields, s.NotEnforced)
	}
	if f := s.Fields[policy.FieldPIDs]; f.Value != int64(800) || f.Layer != policy.LayerBackend || f.Ceiling != whole.Fields[policy.FieldPIDs].Ceiling {
		t.Errorf("pids %+v", f)
	}
	for _, same := range []string{policy.FieldTimeoutMS, policy.FieldImage} {
		if !reflect.DeepEqual(s.Fields[same], whole.Fields[same]) {
			t.Errorf("%s is %+v, and was %+v", same, s.Fields[same], whole.Fields[same])
		}
	}
	if len(whole.Fields) != len(policy.Names()) || whole.NotEnforced != nil {
		t.Error("the policy itself was changed")
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := policy.ParseSnapshot(data)
	if err != nil || !reflect.DeepEqual(got.Fields, s.Fields) || !slices.Equal(got.NotEnforced, s.NotEnforced) || got.Values.PIDs != 800 ||
		got.Values.MaxArtifactsBytesTotal != 0 {
		t.Errorf("stored as %s, read as %+v, %v", data, got, err)
	}
	data, _ = json.Marshal(bare)
	for _, broken := range []string{``, `"memory_mb","memory_mb",`, `"memory_mb","timeout_ms",`, `"memory_mb","what",`} {
		text := strings.Replace(string(data), `"memory_mb",`, broken, 1)
		if _, err := policy.ParseSnapshot([]byte(text)); err == nil {
			t.Errorf("%s is taken for a snapshot", text)
		}
	}
}

// TestOwnImages: names that come and go are allowed at once, beside the list of the settings.
func TestOwnImages(t *testing.T) {
	t.Parallel()
	var names []string
	r, err := policy.New(policy.Config{Images: []string{"a:1"}, Own: func(wanted string) []string {
		if wanted == "data" && names == nil {
			names = []string{"data"}
		}
		return names
	}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(image string) error {
		_, err := r.Resolve(nil, policy.Layer{Image: &image}, policy.Host{})
		return err
	}
	if err := ask("other"); !fault.Is(err, fault.PolicyDenied) {
		t.Errorf("an unknown name: %v", err)
	}
	for _, image := range []string{"data", "a:1", policy.DefaultImage} {
		if err := ask(image); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
	if got := r.Images(); !slices.Equal(got, []string{policy.DefaultImage, "a:1", "data"}) {
		t.Errorf("allowed are %q", got)
	}
	names = []string{}
	if err := ask("data"); !fault.Is(err, fault.PolicyDenied) {
		t.Errorf("after its removal: %v", err)
	}
}
