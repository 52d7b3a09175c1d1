package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"secbox/fault"
	"secbox/skills/schema"
)

// Arguments of every tool in addition to the skill's inputs, unless the skill has an input of the
// same name. The session is one of tools that may run in a session.
const (
	argProject = "project_id"
	argTimeout = "timeout_ms"
	argSession = "session_id"
)

var argSchemas = map[string]json.RawMessage{
	argProject: json.RawMessage(`{"type":"string","description":"The project whose files the call works on. ` +
		`Leave it out for your usual one; calls with the same project see what the others left in /workspace/work."}`),
	argTimeout: json.RawMessage(`{"type":"integer","minimum":1,"description":"Milliseconds until the call is killed. Leave it out for the usual limit."}`),
	argSession: json.RawMessage(`{"type":"string","description":"A session that runs, of session_start: the call runs in its container, beside its commands. ` +
		`Leave it out for a container of its own."}`),
}

// callOptions are the values of those arguments.
type callOptions struct {
	project   string
	session   string
	timeoutMS *int64
}

// argumentSchema adds the optional arguments above, and what schema.Meant does, to the schema of a
// skill's inputs. It returns the names of the arguments that it added. Only a schema of an object
// makes a tool.
func argumentSchema(inputs json.RawMessage, inSessions bool) (arguments json.RawMessage, added []string, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(inputs, &object); err != nil {
		return nil, nil, fmt.Errorf("the schema of the inputs is not an object: %w", err)
	}
	properties := map[string]json.RawMessage{}
	if raw, ok := object["properties"]; ok {
		if err := json.Unmarshal(raw, &properties); err != nil {
			return nil, nil, fmt.Errorf("the properties of the inputs are not an object: %w", err)
		}
	}
	for name, one := range argSchemas {
		if _, taken := properties[name]; !taken && (inSessions || name != argSession) {
			added, properties[name] = append(added, name), one
		}
	}
	var described string
	if raw, ok := object["description"]; ok && json.Unmarshal(raw, &described) == nil && described != "" {
		described += " "
	}
	if object["description"], err = json.Marshal(described + schema.MeantRule); err != nil {
		return nil, nil, err
	}
	if object["properties"], err = json.Marshal(properties); err != nil {
		return nil, nil, err
	}
	if _, ok := object["type"]; !ok {
		object["type"] = json.RawMessage(`"object"`)
	}
	arguments, err = json.Marshal(object)
	return arguments, added, err
}

// meantBy returns arguments as schema.MeantText does, and as sent if they are not valid: their
// check will tell.
func meantBy(arguments, inputSchema json.RawMessage) json.RawMessage {
	doc, unread := schema.Parse(inputSchema)
	if unread != nil {
		return arguments
	}
	text, _, wrong := schema.MeantText(arguments, doc)
	if wrong != nil {
		return arguments
	}
	return text
}

// splitArguments separates the added arguments from the skill's inputs. It keeps the inputs as
// sent, even duplicate names, for validation against the skill's schema. fault.InvalidInputs.
func splitArguments(arguments json.RawMessage, added []string) (o callOptions, inputs json.RawMessage, err error) {
	trimmed := bytes.TrimSpace(arguments)
	if len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")) {
		return callOptions{}, json.RawMessage("{}"), nil
	}
	if trimmed[0] != '{' || !json.Valid(trimmed) {
		return callOptions{}, nil, fault.New(fault.InvalidInputs, "arguments must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(trimmed))
	if _, err := d.Token(); err != nil {
		return callOptions{}, nil, fault.New(fault.InvalidInputs, "arguments must be a JSON object")
	}
	var kept bytes.Buffer
	kept.WriteByte('{')
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return callOptions{}, nil, fault.New(fault.InvalidInputs, "arguments: %s", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return callOptions{}, nil, fault.New(fault.InvalidInputs, "arguments: %s", err)
		}
		name, _ := key.(string)
		if !slices.Contains(added, name) {
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
			return callOptions{}, nil, badArgument(name, "is given twice")
		}
		seen[name] = true
		switch name {
		case argTimeout:
			if json.Unmarshal(value, &o.timeoutMS) != nil || o.timeoutMS == nil || *o.timeoutMS < 1 {
				return callOptions{}, nil, badArgument(name, "must be a whole number of milliseconds, at least 1")
			}
		case argSession:
			err = textArgument(name, value, &o.session, "a container of its own")
		default:
			err = textArgument(name, value, &o.project, "your usual project")
		}
		if err != nil {
			return callOptions{}, nil, err
		}
	}
	kept.WriteByte('}')
	return o, kept.Bytes(), nil
}

// textArgument decodes a string, which is left out for otherwise.
func textArgument(name string, value json.RawMessage, into *string, otherwise string) error {
	switch {
	case json.Unmarshal(value, into) != nil || string(value) == "null":
		return badArgument(name, "must be a string")
	case *into == "":
		return badArgument(name, "is empty; leave it out for "+otherwise)
	}
	return nil
}

func badArgument(name, reason string) error {
	e := fault.New(fault.InvalidInputs, "%s: %s", name, reason)
	e.Fields = []fault.Field{{Field: name, Reason: reason}}
	return e
}
