package api

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"secbox/audit"
)

// TestRecordHasEveryField fails when execRecord forgets a field of audit.Record.
func TestRecordHasEveryField(t *testing.T) {
	t.Parallel()
	rec := audit.Record{}
	fill(t, reflect.ValueOf(&rec).Elem())
	rec.PolicySnapshot = json.RawMessage(`{"fields":{}}`)
	fields := func(v any) map[string]any {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := fields(execRecord(rec, nil))
	for name, want := range fields(rec) {
		if name == "connections" { // only on the way into the database
			continue
		}
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %v in the answer, %v in the record", name, got[name], want)
		}
	}
}

// fill sets a value and everything in it to something that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)))
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("fill a %s too", v.Type())
	}
}
