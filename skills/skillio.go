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

// Bounds of a skill's inputs and outputs, in bytes of JSON.
const (
	MaxInputBytes  = 4 << 20
	MaxOutputBytes = 4 << 20
)

// outputFile is the name of the output below the skill's artifacts.
const outputFile = "skill_output.json"

// maxFields bounds the wrong inputs that one error names.
const maxFields = 20

// CheckInputs validates the inputs of an invoke; empty inputs mean {}. The error is
// fault.InvalidInputs, with fields such as inputs.list[3].x and reasons that do not repeat the
// values; or fault.ServerBusy; or the cause of ctx's end.
func (s *Skill) CheckInputs(ctx context.Context, inputs json.RawMessage) error {
	if len(inputs) <= MaxInputBytes && len(bytes.TrimSpace(inputs)) == 0 {
		inputs = json.RawMessage("{}")
	}
	found, value, err := check(ctx, s.inputs, inputs, MaxInputBytes)
	if found == nil {
		return err
	}
	found = cut(found, maxFields, func(n int) schema.Finding { return schema.Finding{Reason: fmt.Sprintf("and %d more", n)} })
	e := &fault.Error{Code: fault.InvalidInputs}
	for _, f := range found {
		e.Fields = append(e.Fields, fault.Field{Field: schema.FieldName("inputs", value, f.Path), Reason: f.Reason})
	}
	e.Message = fmt.Sprintf("the inputs do not fit the skill %s: %s: %s", s.ID(), e.Fields[0].Field, e.Fields[0].Reason)
	if len(e.Fields) > 1 {
		e.Message += fmt.Sprintf(" (and %d more, see errors)", len(e.Fields)-1)
	}
	return e
}

// CheckOutputs validates the output of a skill and returns it without white space. The error is a
// sentence for the record, such as "skill_output.json: /matches/0/line must be a whole number, not
// a string"; or fault.ServerBusy; or the cause of ctx's end.
func (s *Skill) CheckOutputs(ctx context.Context, raw []byte) (json.RawMessage, error) {
	found, _, err := check(ctx, s.outputs, raw, MaxOutputBytes)
	if err != nil {
		return nil, err
	}
	if found == nil {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, fmt.Errorf("%s is no JSON", outputFile)
		}
		return compact.Bytes(), nil
	}
	where := outputFile
	if len(found[0].Path) > 0 {
		where += ": " + schema.Pointer(found[0].Path)
	}
	more := ""
	if len(found) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(found)-1)
	}
	return nil, fmt.Errorf("%s %s%s", where, found[0].Reason, more)
}

// check parses a JSON object and validates it. The value is nil when it could not be parsed.
func check(ctx context.Context, s *schema.Schema, raw []byte, most int) ([]schema.Finding, any, error) {
	if len(raw) > most {
		return []schema.Finding{{Reason: fmt.Sprintf("is larger than %d bytes; put that much data into a file", most)}}, nil, nil
	}
	value, unread := schema.Parse(raw)
	if unread != nil {
		return []schema.Finding{*unread}, nil, nil
	}
	if _, ok := value.(map[string]any); !ok {
		return []schema.Finding{{Reason: "must be an object, not " + schema.KindOf(value)}}, nil, nil
	}
	found, err := s.Validate(ctx, value)
	return found, value, err
}

// cut keeps the first elements of a list, and replaces the others by one from more, which gets
// their number.
func cut[T any](list []T, most int, more func(int) T) []T {
	if len(list) <= most {
		return list
	}
	return append(slices.Clip(list[:most-1]), more(len(list)-most+1))
}
