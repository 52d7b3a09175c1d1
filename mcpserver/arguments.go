package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"

	"secbox/fault"
)

// argProject is the argument that every tool takes beside its skill's inputs, unless the skill has an input of that name.
const argProject = "project_id"

// withProject is the schema of a tool's arguments: the skill's as it is, and the optional argument project_id. It reports whether the
// argument is ours: a skill that has an input of that name keeps it. A schema that is no object's makes no tool.
func withProject(inputs json.RawMessage) (schema json.RawMessage, ours bool, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(inputs, &object); err != nil {
		return nil, false, fmt.Errorf("the schema of the inputs is no object: %w", err)
	}
	properties := map[string]json.RawMessage{}
	if raw, ok := object["properties"]; ok {
		if err := json.Unmarshal(raw, &properties); err != nil {
			return nil, false, fmt.Errorf("the properties of the inputs are no object: %w", err)
		}
	}
	if _, taken := properties[argProject]; taken {
		return inputs, false, nil
	}
	properties[argProject] = json.RawMessage(`{"type":"string","description":"The project whose files the call works on. ` +
		`Leave it out for your usual one; calls with the same project see what the others left in /workspace/work."}`)
	if object["properties"], err = json.Marshal(properties); err != nil {
		return nil, false, err
	}
	if _, ok := object["type"]; !ok {
		object["type"] = json.RawMessage(`"object"`)
	}
	schema, err = json.Marshal(object)
	return schema, true, err
}

// splitProject takes the argument project_id out of a tool's arguments. All else stays as it was sent, duplicates included, for the
// skill's schema to judge; fault.InvalidInputs when that cannot be done.
func splitProject(arguments json.RawMessage) (project string, rest json.RawMessage, err error) {
	trimmed := bytes.TrimSpace(arguments)
	if len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")) {
		return "", json.RawMessage("{}"), nil
	}
	if trimmed[0] != '{' || !json.Valid(trimmed) {
		return "", nil, fault.New(fault.InvalidInputs, "arguments must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(trimmed))
	if _, err := d.Token(); err != nil {
		return "", nil, fault.New(fault.InvalidInputs, "arguments must be a JSON object")
	}
	var kept bytes.Buffer
	kept.WriteByte('{')
	given := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", nil, fault.New(fault.InvalidInputs, "arguments: %s", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", nil, fault.New(fault.InvalidInputs, "arguments: %s", err)
		}
		if key != argProject {
			if kept.Len() > 1 {
				kept.WriteByte(',')
			}
			name, _ := json.Marshal(key)
			kept.Write(name)
			kept.WriteByte(':')
			kept.Write(value)
			continue
		}
		if given {
			return "", nil, badArgument("is given twice")
		}
		given = true
		if err := json.Unmarshal(value, &project); err != nil || string(value) == "null" {
			return "", nil, badArgument("must be a string")
		}
		if project == "" {
			return "", nil, badArgument("is empty; leave it out for your usual project")
		}
	}
	kept.WriteByte('}')
	return project, kept.Bytes(), nil
}

func badArgument(reason string) error {
	e := fault.New(fault.InvalidInputs, "%s: %s", argProject, reason)
	e.Fields = []fault.Field{{Field: argProject, Reason: reason}}
	return e
}
