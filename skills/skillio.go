package skills

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"secbox/fault"
	"secbox/skills/schema"
)

// Bounds of what goes into a skill and what comes out of it, in bytes of JSON.
const (
	MaxInputBytes  = 4 << 20
	MaxOutputBytes = 4 << 20
)

// OutputFile is what a skill leaves its output in, below its artifacts.
const OutputFile = "skill_output.json"

// maxFields is how many wrong inputs are named in one refusal.
const maxFields = 20

// CheckInputs validates what a caller gives the skill; nothing at all means {}. The error is fault.InvalidInputs, whose fields are
// named as in inputs.list[3].x and whose sentences do not repeat the values; or fault.ServerBusy. When ctx ends first, the error is the cause.
func (s *Skill) CheckInputs(ctx context.Context, inputs json.RawMessage) error {
	bad, value, err := check(ctx, s.inputs, inputs, MaxInputBytes, true)
	if bad == nil {
		return err
	}
	bad = cut(bad, maxFields, func(n int) schema.Finding { return schema.Finding{Reason: fmt.Sprintf("and %d more", n)} })
	e := &fault.Error{Code: fault.InvalidInputs}
	for _, f := range bad {
		e.Fields = append(e.Fields, fault.Field{Field: schema.FieldName("inputs", value, f.Path), Reason: f.Reason})
	}
	e.Message = fmt.Sprintf("the inputs do not fit the skill %s: %s: %s", s.ID(), e.Fields[0].Field, e.Fields[0].Reason)
	if len(e.Fields) > 1 {
		e.Message += fmt.Sprintf(" (and %d more, see errors)", len(e.Fields)-1)
	}
	return e
}

// CheckOutputs validates what the skill has left and returns it without white space. The error is a sentence for the record,
// skill_output.json: /matches/0/line must be a whole number, not a string; or fault.ServerBusy. When ctx ends first, the error is the cause.
func (s *Skill) CheckOutputs(ctx context.Context, raw []byte) (json.RawMessage, error) {
	bad, _, err := check(ctx, s.outputs, raw, MaxOutputBytes, false)
	if err != nil {
		return nil, err
	}
	if bad == nil {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, fmt.Errorf("%s is no JSON", OutputFile)
		}
		return compact.Bytes(), nil
	}
	place := OutputFile
	if len(bad[0].Path) > 0 {
		place += ": " + schema.Pointer(bad[0].Path)
	}
	more := ""
	if len(bad) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(bad)-1)
	}
	return nil, fmt.Errorf("%s %s%s", place, bad[0].Reason, more)
}

// check reads a JSON object and validates it. The value is nil when it could not be read.
func check(ctx context.Context, v *schema.Schema, raw []byte, most int, emptyIsObject bool) ([]schema.Finding, any, error) {
	if len(raw) > most {
		return []schema.Finding{{Reason: fmt.Sprintf("is larger than %d bytes; put that much data into a file", most)}}, nil, nil
	}
	if emptyIsObject && len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	value, bad := schema.Parse(raw)
	if bad != nil {
		return []schema.Finding{*bad}, nil, nil
	}
	if _, ok := value.(map[string]any); !ok {
		return []schema.Finding{{Reason: "must be an object, not " + schema.KindOf(value)}}, nil, nil
	}
	found, err := v.Validate(ctx, value)
	return found, value, err
}

// cut keeps the first elements of a list and says how many follow.
func cut[T any](list []T, most int, more func(int) T) []T {
	if len(list) <= most {
		return list
	}
	return append(slices.Clip(list[:most-1]), more(len(list)-most+1))
}
