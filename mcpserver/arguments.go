package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"secbox/fault"
)

// The arguments that every tool takes beside its skill's inputs, unless the skill has an input of that name.
const (
	argProject = "project_id"
	argTimeout = "timeout_ms"
)

var argSchemas = map[string]json.RawMessage{
	argProject: json.RawMessage(`{"type":"string","description":"The project whose files the call works on. ` +
		`Leave it out for your usual one; calls with the same project see what the others left in /workspace/work."}`),
	argTimeout: json.RawMessage(`{"type":"integer","minimum":1,"description":"Milliseconds until the call is killed. Leave it out for the usual limit."}`),
}

// given are the values of those arguments.
type given struct {
	project   string
	timeoutMS *int64
}

// withOurs is the schema of a tool's arguments: the skill's as it is, and ours, which are optional. It returns those that are ours: a skill
// that has an input of such a name keeps it. A schema that is no object's makes no tool.
func withOurs(inputs json.RawMessage) (schema json.RawMessage, ours []string, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(inputs, &object); err != nil {
		return nil, nil, fmt.Errorf("the schema of the inputs is no object: %w", err)
	}
	properties := map[string]json.RawMessage{}
	if raw, ok := object["properties"]; ok {
		if err := json.Unmarshal(raw, &properties); err != nil {
			return nil, nil, fmt.Errorf("the properties of the inputs are no object: %w", err)
		}
	}
	for name, schema := range argSchemas {
		if _, taken := properties[name]; !taken {
			ours, properties[name] = append(ours, name), schema
		}
	}
	if object["properties"], err = json.Marshal(properties); err != nil {
		return nil, nil, err
	}
	if _, ok := object["type"]; !ok {
		object["type"] = json.RawMessage(`"object"`)
	}
	schema, err = json.Marshal(object)
	return schema, ours, err
}

// splitArguments takes our arguments out of a tool's. All else stays as it was sent, duplicates included, for the
// skill's schema to judge; fault.InvalidInputs when that cannot be done.
func splitArguments(arguments json.RawMessage, ours []string) (g given, rest json.RawMessage, err error) {
	trimmed := bytes.TrimSpace(arguments)
	if len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")) {
		return given{}, json.RawMessage("{}"), nil
	}
	if trimmed[0] != '{' || !json.Valid(trimmed) {
		return given{}, nil, fault.New(fault.InvalidInputs, "arguments must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(trimmed))
	if _, err := d.Token(); err != nil {
		return given{}, nil, fault.New(fault.InvalidInputs, "arguments must be a JSON object")
	}
	var kept bytes.Buffer
	kept.WriteByte('{')
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return given{}, nil, fault.New(fault.InvalidInputs, "arguments: %s", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return given{}, nil, fault.New(fault.InvalidInputs, "arguments: %s", err)
		}
		name, _ := key.(string)
		if !slices.Contains(ours, name) {
			if kept.Len() > 1 {
				kept.WriteByte(',')
			}
			text, _ := json.Marshal(key)
			kept.Write(text)
			kept.WriteByte(':')
			kept.Write(value)
			continue
		}
		if seen[name] {
			return given{}, nil, badArgument(name, "is given twice")
		}
		seen[name] = true
		switch {
		case name == argTimeout:
			if json.Unmarshal(value, &g.timeoutMS) != nil || g.timeoutMS == nil || *g.timeoutMS < 1 {
				return given{}, nil, badArgument(name, "must be a whole number of milliseconds, at least 1")
			}
		case json.Unmarshal(value, &g.project) != nil || string(value) == "null":
			return given{}, nil, badArgument(name, "must be a string")
		case g.project == "":
			return given{}, nil, badArgument(name, "is empty; leave it out for your usual project")
		}
	}
	kept.WriteByte('}')
	return g, kept.Bytes(), nil
}

func badArgument(name, reason string) error {
	e := fault.New(fault.InvalidInputs, "%s: %s", name, reason)
	e.Fields = []fault.Field{{Field: name, Reason: reason}}
	return e
}
