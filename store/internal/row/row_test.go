package row_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"secbox/audit"
	"secbox/store/internal/row"
)

// TestEveryValueIsItsColumns sets one field at a time and sees that only its column's value
// changes.
func TestEveryValueIsItsColumns(t *testing.T) {
	t.Parallel()
	valid := audit.Record{ExecID: "e", Status: audit.Running, CreatedAt: time.Unix(2, 0)}
	_, empty, err := row.InsertArgs(valid, encodeTime)
	if err != nil {
		t.Fatal(err)
	}
	record := reflect.TypeFor[audit.Record]()
	one := 1
	for i := range record.NumField() {
		if record.Field(i).Tag.Get("row") == "-" { // no column
			continue
		}
		r := valid
		field := reflect.ValueOf(&r).Elem().Field(i)
		switch field.Interface().(type) {
		case time.Time:
			field.Set(reflect.ValueOf(time.Unix(1, 0)))
		case []string:
			field.Set(reflect.ValueOf([]string{"x"}))
		case []audit.Input:
			field.Set(reflect.ValueOf([]audit.Input{{Path: "x"}}))
		case json.RawMessage:
			field.Set(reflect.ValueOf(json.RawMessage(`1`)))
		case map[string]audit.LargeList:
			field.Set(reflect.ValueOf(map[string]audit.LargeList{"args": {Count: 1}}))
		case *int:
			field.Set(reflect.ValueOf(&one))
		case *int64:
			field.Set(reflect.ValueOf(new(int64(7))))
		case bool:
			field.SetBool(true)
		case int64:
			field.SetInt(7)
		case audit.Status:
			field.SetString(string(audit.Lost))
		default:
			field.SetString("x")
		}
		_, values, err := row.InsertArgs(r, encodeTime)
		if err != nil {
			t.Fatal(err)
		}
		for j := range values {
			if changed := !reflect.DeepEqual(values[j], empty[j]); changed != (i == j) {
				t.Errorf("setting %s: the value of %s changed: %v", record.Field(i).Name, row.Columns()[j], changed)
			}
		}
	}
}
