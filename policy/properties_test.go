package policy_test

import (
	"bytes"
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

// said returns a layer's values by public name; those that it does not ask for are missing.
func said(l policy.Layer) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(l)
	for _, f := range leaves(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := v.FieldByIndex(f.Index)
		if field.IsNil() {
			continue
		}
		if field.Kind() == reflect.Pointer {
			out[name] = field.Elem().Interface()
		} else {
			out[name] = field.Interface()
		}
	}
	return out
}

// only is the layer with all but the named fields silenced.
func only(l policy.Layer, names ...string) policy.Layer {
	v := reflect.ValueOf(&l).Elem()
	for _, f := range leaves(v.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !slices.Contains(names, name) {
			v.FieldByIndex(f.Index).SetZero()
		}
	}
	return l
}

// same compares words: lists as sets, since repetitions and order mean nothing.
func same(a, b any) bool {
	la, oka := a.([]string)
	lb, okb := b.([]string)
	if oka && okb {
		return subset(la, lb) && subset(lb, la)
	}
	return reflect.DeepEqual(a, b)
}

func subset(a, b []string) bool {
	for _, s := range a {
		if !slices.Contains(b, s) {
			return false
		}
	}
	return true
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

func noWider(a, b policy.Mounts) bool {
	return a.Inputs <= b.Inputs && a.Work <= b.Work && a.Artifacts <= b.Artifacts
}

// checkMerge checks the properties of every merge.
func checkMerge(cfg policy.Config, manifest *policy.Layer, request policy.Layer, host policy.Host) error {
	r, err := policy.New(cfg)
	if err != nil {
		if !fault.Is(err, fault.InvalidSettings) || len(fault.From(err).Fields) == 0 {
			return fmt.Errorf("New failed with %w", err)
		}
		return nil
	}
	s, err := r.Resolve(manifest, request, host)
	refused := map[string]bool{} // layer and public name
	if err != nil {
		e := fault.From(err)
		if e.Code != fault.InvalidRequest && e.Code != fault.PolicyDenied || len(e.Fields) == 0 {
			return fmt.Errorf("Resolve failed with %w", err)
		}
		for _, f := range e.Fields {
			if f.Reason == "" {
				return fmt.Errorf("%s was refused without a reason", f.Field)
			}
			if e.Code == fault.PolicyDenied {
				refused[f.Layer+" "+f.Field] = true
			}
		}
	}

	layers := []struct {
		name  string
		words map[string]any
	}{{"default", nil}, {"settings", said(cfg.Settings)}, {"manifest", nil}, {"request", said(request)}}
	if manifest != nil {
		layers[2].words = said(*manifest)
	}
	defaults := reflect.ValueOf(policy.Defaults())
	for _, f := range leaves(defaults.Type()) {
		if layers[0].words == nil {
			layers[0].words = map[string]any{}
		}
		layers[0].words[f.Tag.Get("json")] = defaults.FieldByIndex(f.Index).Interface()
	}
	layers[0].words["kill_grace_ms"] = min(2000, s.Values.TimeoutMS/10)
	layers[0].words["shm_mb"] = min(s.Values.MemoryMB, s.Fields["shm_mb"].Ceiling.(int64))
	values := reflect.ValueOf(s.Values)
	for _, f := range leaves(values.Type()) {
		name := f.Tag.Get("json")
		field, ok := s.Fields[name]
		if !ok {
			return fmt.Errorf("%s is missing in the snapshot", name)
		}
		if !reflect.DeepEqual(field.Value, values.FieldByIndex(f.Index).Interface()) {
			return fmt.Errorf("%s: Fields say %v, Values %v", name, field.Value, values.FieldByIndex(f.Index))
		}
		if err := checkCeiling(name, field, cfg, host); err != nil {
			return err
		}
		if err := checkProvenance(name, field, layers, refused, err != nil && fault.Is(err, fault.InvalidRequest)); err != nil {
			return err
		}
	}
	if len(s.Fields) != len(leaves(values.Type())) {
		return fmt.Errorf("%d fields in the snapshot, want %d", len(s.Fields), len(leaves(values.Type())))
	}

	// fs only narrows, layer by layer.
	base, _ := r.Resolve(nil, policy.Layer{}, host)
	first, _ := r.Resolve(manifest, policy.Layer{}, host)
	if a, b, c := s.Values.MountModes(), first.Values.MountModes(), base.Values.MountModes(); !noWider(a, b) || !noWider(b, c) {
		return fmt.Errorf("mounts widen: %s, then %s, then %s", c, b, a)
	}

	// The stored snapshot is the same.
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if back, err := policy.ParseSnapshot(data); err != nil || !reflect.DeepEqual(back, s) {
		return fmt.Errorf("the stored snapshot is another one: %w\n%+v\n%+v", err, s, back)
	}

	// A layer of the values asks for the same again, as a replay does.
	asked := s.Values.Layer()
	again, err := r.Resolve(nil, asked, host)
	if tooSmall := len(policy.Check(asked, "")) > 0; !tooSmall && (err != nil || !reflect.DeepEqual(again.Values, s.Values)) {
		return fmt.Errorf("asked again: %+v, %w\n%+v", again.Values, err, s.Values)
	}

	// The fields know nothing of each other, except for defaults, so their order cannot matter.
	for _, name := range policy.Names() {
		names := []string{name}
		switch name {
		case "fs.read":
			names = append(names, "fs.write") // a later layer may ask to read an earlier one's writable directories
		case "kill_grace_ms":
			names = append(names, "timeout_ms") // its default
		case "shm_mb":
			names = append(names, "memory_mb") // its default
		}
		var alone *policy.Layer
		if manifest != nil {
			l := only(*manifest, names...)
			alone = &l
		}
		if t, _ := r.Resolve(alone, only(request, names...), host); !reflect.DeepEqual(t.Fields[name], s.Fields[name]) {
			return fmt.Errorf("%s depends on other fields: %+v alone, %+v together", name, t.Fields[name], s.Fields[name])
		}
	}
	return nil
}

func checkCeiling(name string, f policy.Field, cfg policy.Config, host policy.Host) error {
	ceiling, isNumber := number(f.Ceiling)
	if !isNumber {
		switch c := f.Ceiling.(type) {
		case string:
			if f.Value != c {
				return fmt.Errorf("%s is %v, which is not %s", name, f.Value, c)
			}
		case []string:
			if word, ok := f.Value.(string); ok && !slices.Contains(c, word) {
				return fmt.Errorf("%s is %s, which is none of %v", name, word, c)
			}
			if list, ok := f.Value.([]string); ok && name == "fs.write" && !subset(list, c) {
				return fmt.Errorf("%s is %v, which is more than %v", name, list, c)
			}
		}
		return nil
	}
	value, _ := number(f.Value)
	if value > ceiling || value < 0 || value == 0 && name != "kill_grace_ms" {
		return fmt.Errorf("%s is %v, its ceiling %v", name, value, ceiling)
	}
	configured, given := said(policy.Layer{Limits: cfg.Ceiling})[name]
	if !given {
		for _, d := range policy.Describe() {
			if d.Name == name {
				configured = d.Ceiling
			}
		}
	}
	limit, _ := number(configured)
	bound := map[string]float64{"cpu_cores": float64(host.CPUs), "memory_mb": float64(host.MemoryMB)}[name]
	switch f.CeilingFrom {
	case "host":
		if ceiling != bound || bound >= limit {
			return fmt.Errorf("%s: ceiling %v is not the host's %v under %v", name, ceiling, bound, limit)
		}
	case "settings", "default":
		if ceiling != limit || given != (f.CeilingFrom == "settings") || bound > 0 && bound < limit {
			return fmt.Errorf("%s: ceiling %v from %s; configured %v (%v), host %v", name, ceiling, f.CeilingFrom, limit, given, bound)
		}
	default:
		return fmt.Errorf("%s: a ceiling from %q", name, f.CeilingFrom)
	}
	return nil
}

// checkProvenance finds the layer that the field names and holds it to its word; layers after it
// were silent or refused.
func checkProvenance(name string, f policy.Field, layers []struct {
	name  string
	words map[string]any
}, refused map[string]bool, anyRefused bool,
) error {
	named := false
	for _, l := range layers {
		word, spoke := l.words[name]
		switch {
		case l.name == f.Layer:
			named = true
			if f.ClampedFrom != nil {
				if !same(word, f.ClampedFrom) || f.CeilingFrom != "host" || !reflect.DeepEqual(f.Value, f.Ceiling) {
					return fmt.Errorf("%s was cut from %v, but %s said %v: %+v", name, f.ClampedFrom, l.name, word, f)
				}
			} else if !spoke || !same(word, f.Value) {
				return fmt.Errorf("%s is %v by %s, which said %v (%v)", name, f.Value, l.name, word, spoke)
			}
		case l.name == policy.LayerManifest && refused[policy.LayerRequest+" "+name]: // the request's violation is reported, not the manifest's
		case named && spoke && !refused[l.name+" "+name] && !anyRefused:
			return fmt.Errorf("%s is by %s although %s said %v and was not refused", name, f.Layer, l.name, word)
		}
	}
	if !named {
		return fmt.Errorf("%s is by %q, which is no layer", name, f.Layer)
	}
	return nil
}

// Generators: mostly values that matter, around ceilings, floors and the ends of the types.

func maybe[T any](t *rapid.T, label string, g *rapid.Generator[T]) *T {
	if !rapid.Bool().Draw(t, label+"?") {
		return nil
	}
	v := g.Draw(t, label)
	return &v
}

func around(edges ...int64) *rapid.Generator[int64] {
	near := rapid.Custom(func(t *rapid.T) int64 {
		return rapid.SampledFrom(edges).Draw(t, "edge") + rapid.Int64Range(-2, 2).Draw(t, "off")
	})
	return rapid.OneOf(near, rapid.Int64Range(1, slices.Max(edges)), rapid.Int64())
}

func drawList(t *rapid.T, label string) []string {
	all := []string{"inputs/**", "work/**", "artifacts/**"}
	if rapid.IntRange(0, 9).Draw(t, label+" strange") == 0 {
		all = append(all, "/etc/**")
	}
	return append([]string{}, rapid.SliceOfN(rapid.SampledFrom(all), 0, 4).Draw(t, label)...)
}

// drawLayer draws every field of fieldCases, which has all that a layer may ask for.
func drawLayer(t *rapid.T, who string) policy.Layer {
	var l policy.Layer
	for _, c := range fieldCases {
		label := who + "." + c.name
		if !rapid.Bool().Draw(t, label+"?") {
			continue
		}
		var value any
		switch def := c.def.(type) {
		case int64:
			least := int64(math.MinInt64)
			for _, n := range c.invalid {
				least = max(least, n.(int64)+1)
			}
			value = around(least, def, c.ceiling.(int64)).Draw(t, label)
		case float64:
			value = rapid.OneOf(rapid.Float64Range(c.good.(float64), c.ceiling.(float64)+1),
				rapid.SampledFrom([]float64{c.good.(float64), def, c.ceiling.(float64)}), rapid.Float64()).Draw(t, label)
		case string:
			value = rapid.SampledFrom([]any{def, c.good, c.other, c.above, c.invalid[0]}).Draw(t, label)
		case []policy.Credential:
			value = rapid.SampledFrom([]any{def, c.above, c.invalid[1]}).Draw(t, label)
		default:
			value = drawList(t, label)
		}
		set(t, &l, c.name, value)
	}
	return l
}

// drawConfig makes settings that are mostly valid, so that the merge is reached.
func drawConfig(t *rapid.T) policy.Config {
	cfg := policy.Config{
		SettingsDigest: "sha256:0", Settings: drawLayer(t, "settings"),
		Images: rapid.SliceOfN(rapid.SampledFrom([]string{"a:1", "b:2"}), 0, 3).Draw(t, "images"),
	}
	cfg.Ceiling = policy.Limits{
		TimeoutMS: maybe(t, "ceiling.timeout", rapid.Int64Range(60000, 1<<32)),
		MemoryMB:  maybe(t, "ceiling.memory", rapid.Int64Range(1024, 1<<20)),
		CPUCores:  maybe(t, "ceiling.cpu", rapid.Float64Range(1, 100)),
		PIDs:      maybe(t, "ceiling.pids", rapid.Int64Range(256, 1<<20)),
	}
	cfg.Settings.NetCredentials = nil
	if _, err := policy.New(cfg); err != nil && rapid.IntRange(0, 9).Draw(t, "keep broken settings") > 0 {
		for _, f := range fault.From(err).Fields { // drop invalid values
			if name, ok := strings.CutPrefix(f.Field, "sandbox.policy."); ok {
				cfg.Settings = without(cfg.Settings, name)
			}
		}
	}
	return cfg
}

func without(l policy.Layer, name string) policy.Layer {
	return only(l, slices.DeleteFunc(policy.Names(), func(n string) bool { return n == name })...)
}

// modest removes values that would be refused: hardly one in a hundred random layers is allowed as
// a whole.
func modest(cfg policy.Config, manifest *policy.Layer, request policy.Layer, host policy.Host) (*policy.Layer, policy.Layer) {
	r, err := policy.New(cfg)
	if err != nil {
		return manifest, request
	}
	for range 2 { // invalid values hide those that are not allowed
		_, err := r.Resolve(manifest, request, host)
		if err == nil {
			break
		}
		for _, f := range fault.From(err).Fields {
			if name, ok := strings.CutPrefix(f.Field, "manifest."); ok || f.Layer == "manifest" {
				l := without(*manifest, name)
				manifest = &l
			} else {
				request = without(request, strings.TrimPrefix(f.Field, "policy_overrides."))
			}
		}
	}
	return manifest, request
}

func drawHost(t *rapid.T) policy.Host {
	return policy.Host{
		CPUs:     rapid.SampledFrom([]int{0, 0, 1, 2, 8, 64, -1}).Draw(t, "cpus"),
		MemoryMB: rapid.SampledFrom([]int64{0, 0, 8, 100, 1024, 4000, 1 << 20, -5}).Draw(t, "memory"),
	}
}

func TestEveryMergeKeepsItsPromises(t *testing.T) {
	t.Parallel()
	resolved := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg, request, host := drawConfig(t), drawLayer(t, "request"), drawHost(t)
		var manifest *policy.Layer
		if rapid.Bool().Draw(t, "manifest?") {
			l := drawLayer(t, "manifest")
			manifest = &l
		}
		if rapid.Bool().Draw(t, "modest?") {
			manifest, request = modest(cfg, manifest, request, host)
		}
		if err := checkMerge(cfg, manifest, request, host); err != nil {
			t.Fatal(err)
		}
		if r, err := policy.New(cfg); err == nil {
			if _, err := r.Resolve(manifest, request, host); err == nil {
				resolved++
			}
		}
	})
	if resolved == 0 {
		t.Error("no merge succeeded; the generators only make refusals")
	}
}

// The order in which a caller writes the fields down changes nothing.
func TestFieldOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	r := resolver(t, policy.Config{Images: imagesAB})
	rapid.Check(t, func(t *rapid.T) {
		layer := drawLayer(t, "request")
		words := said(layer)
		var object bytes.Buffer
		object.WriteByte('{')
		for i, name := range rapid.Permutation(policy.Names()).Draw(t, "order") {
			word, spoke := words[name]
			if !spoke {
				word = nil // null is silence too
			}
			data, err := json.Marshal(word)
			if err != nil {
				return // NaN and the infinities cannot be written in JSON at all
			}
			if i > 0 {
				object.WriteByte(',')
			}
			fmt.Fprintf(&object, "%q:%s", name, data)
		}
		object.WriteByte('}')
		var shuffled policy.Layer
		if err := json.Unmarshal(object.Bytes(), &shuffled); err != nil {
			t.Fatal(err)
		}
		a, errA := r.Resolve(nil, layer, policy.Host{})
		b, errB := r.Resolve(nil, shuffled, policy.Host{})
		if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(errA, errB) {
			t.Fatalf("%s\n%+v %v\n%+v %v", object.Bytes(), a, errA, b, errB)
		}
	})
}

// TestLayerAsksForEveryValue: a field that Values has and Layer leaves out would be missing from
// replays.
func TestLayerAsksForEveryValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.Make[policy.Values]().Draw(t, "values")
		want := map[string]any{}
		v := reflect.ValueOf(values)
		for _, f := range leaves(v.Type()) {
			want[f.Tag.Get("json")] = v.FieldByIndex(f.Index).Interface()
		}
		delete(want, policy.FieldRuntime) // no layer may ask for it
		if got := said(values.Layer()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("asks for %v, want %v", got, want)
		}
	})
}

// FuzzMerge decodes the three layers as they come from a settings file, a manifest and a request,
// and merges them.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{}`), []byte(`null`), []byte(`{"timeout_ms":5000,"memory_mb":256}`), 2, int64(4096))
	f.Add([]byte(`{"fs.read":["inputs/**"]}`), []byte(`{"fs.write":[]}`), []byte(`{"fs.read":["work/**"]}`), 0, int64(0))
	f.Add([]byte(`{"cpu_cores":4}`), []byte(`{"cpu_cores":2.5}`), []byte(`{"cpu_cores":0.30000000000000004}`), 1, int64(8))
	f.Add([]byte(`{"image":"own:1"}`), []byte(`{"image":"evil:1"}`), []byte(`{"net.mode":"host","pids":9223372036854775807}`), -1, int64(-1))
	f.Fuzz(func(t *testing.T, settings, manifest, request []byte, cpus int, memoryMB int64) {
		var s, q policy.Layer
		var m *policy.Layer
		if json.Unmarshal(settings, &s) != nil || json.Unmarshal(manifest, &m) != nil || json.Unmarshal(request, &q) != nil {
			return
		}
		if err := checkMerge(policy.Config{Settings: s, SettingsDigest: "sha256:0"}, m, q, policy.Host{CPUs: cpus, MemoryMB: memoryMB}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParseSnapshot: an accepted snapshot is complete, and is stored again as the same.
func FuzzParseSnapshot(f *testing.F) {
	r, err := policy.New(policy.Config{SettingsDigest: "sha256:0"})
	if err != nil {
		f.Fatal(err)
	}
	s, _ := r.Resolve(nil, policy.Layer{FSRead: []string{}}, policy.Host{CPUs: 1, MemoryMB: 512})
	data, _ := json.Marshal(s)
	f.Add(data)
	f.Add([]byte(`{"fields":{"pids":{"value":1e3}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := policy.ParseSnapshot(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := policy.ParseSnapshot(again); err != nil || !reflect.DeepEqual(back, s) || len(s.Fields)+len(s.NotEnforced) != len(policy.Names()) {
			t.Fatalf("%v\n%+v\n%+v", err, s, back)
		}
	})
}
