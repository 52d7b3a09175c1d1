package schema

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestMeant(t *testing.T) {
	t.Parallel()
	const doc = `{"type": "object", "additionalProperties": false, "required": ["must"], "properties": {
		"must": {"type": "integer"}, "n": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"}, "s": {"type": "string"},
		"any": {}, "both": {"type": ["integer", "null"]}, "nothing": {"type": "null"},
		"list": {"type": "array", "items": {"type": "object", "properties": {"all": {"type": "boolean"}, "n": {"type": "integer"}}}}}}`
	for given, want := range map[string]string{
		`{"n": null, "s": null, "list": null}`:            `{}`,
		`{"must": null, "any": null, "both": null}`:       `{"any":null,"both":null,"must":null}`,
		`{"nothing": null}`:                               `{"nothing":null}`,
		`{"n": "5", "x": "5.5", "b": "true", "s": "5"}`:   `{"b":true,"n":5,"s":"5","x":5.5}`,
		`{"n": "5.0"}`:                                    `{"n":5}`,
		`{"n": 5000.0}`:                                   `{"n":5000}`,
		`{"n": 5e3, "x": 5e3}`:                            `{"n":5000,"x":5e3}`,
		`{"n": 1e300}`:                                    `{"n":1e300}`,
		`{"n": 5.5}`:                                      `{"n":5.5}`,
		`{"n": "5.5", "b": "yes"}`:                        `{"b":"yes","n":"5.5"}`,
		`{"n": "", "x": "null", "b": "\"true\""}`:         `{"b":"\"true\"","n":"","x":"null"}`,
		`{"both": "5", "any": "5"}`:                       `{"any":"5","both":"5"}`,
		`{"list": "[{\"n\": \"1\"}]"}`:                    `{"list":[{"n":1}]}`,
		`{"list": [{"all": null, "n": 2.0}, {}, 3]}`:      `{"list":[{"n":2},{},3]}`,
		`{"list": {"all": null}}`:                         `{"list":{"all":null}}`,
		`{"description": "counts", "n": 1}`:               `{"n":1}`,
		`{"description": 5}`:                              `{}`,
		`{"description": null, "n": 1}`:                   `{"n":1}`,
		`{"explanation": "counts"}`:                       `{"explanation":"counts"}`,
		`{"list": [{"description": "stays"}]}`:            `{"list":[{"description":"stays"}]}`,
		`[{"n": null}]`:                                   `[{"n":null}]`,
		`{"n": {"n": null}, "s": {"n": null}, "b": [{}]}`: `{"b":[{}],"n":{"n":null},"s":{"n":null}}`,
	} {
		arguments, wrong := Parse([]byte(given))
		if wrong != nil {
			t.Fatal(given, wrong)
		}
		value, changed := Meant(arguments, parsed(t, doc))
		text, err := json.Marshal(value)
		if err != nil || string(text) != want {
			t.Errorf("%s is %s, not %s (%v)", given, text, want, err)
		}
		before, _ := json.Marshal(parsed(t, given))
		if changed != (string(text) != string(before)) {
			t.Errorf("%s: changed is %v", given, changed)
		}
	}
	open := parsed(t, `{"type": "object"}`)
	if value, changed := Meant(parsed(t, `{"description": "for the skill"}`), open); changed || value.(map[string]any)["description"] == nil {
		t.Error("a description that the schema allows is gone")
	}
	own := parsed(t, `{"type": "object", "additionalProperties": false, "properties": {"description": {"type": "string"}}}`)
	if value, changed := Meant(parsed(t, `{"description": "its own"}`), own); changed || value.(map[string]any)["description"] == nil {
		t.Error("a description that the schema declares is gone")
	}
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	value, wrong := Parse([]byte(text))
	if wrong != nil {
		t.Fatal(text, wrong)
	}
	return value
}

func TestMeantTextKeepsWhatWasSent(t *testing.T) {
	t.Parallel()
	doc := parsed(t, `{"type": "object", "additionalProperties": false, "properties": {"data": {}, "o": {"type": "object", "properties": {"n": {"type": "integer"}}},
		"n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}}}}`)
	for given, want := range map[string]string{
		`{"data": {"z": 1,"a":2.0}, "n": 5}`:                      `{"data": {"z": 1,"a":2.0}, "n": 5}`,
		`{"n": null, "data": {"z": 1,"a":2.0}}`:                   `{"data":{"z": 1,"a":2.0}}`,
		`{"data": {"z": 1, "a": "\u00e9<"}, "n": "5"}`:            `{"data":{"z": 1, "a": "\u00e9<"},"n":5}`,
		`{"description": "why", "o": {"z": 1, "a": 2}}`:           `{"o":{"z": 1, "a": 2}}`,
		`{"o": {"z": 1, "n": 5.0, "a": {"y": 1, "b": 2}}}`:        `{"o":{"z":1,"n":5,"a":{"y": 1, "b": 2}}}`,
		`{"o": "{\"z\": 1, \"a\": 2}", "data": 1.0}`:              `{"o":{"z": 1, "a": 2},"data":1.0}`,
		`{"o": "{\"z\": 1, \"n\": \"5\", \"a\": 2}", "data": 1}`:  `{"o":{"z":1,"n":5,"a":2},"data":1}`,
		`{"list": ["1", 2, 3.0], "data": [3.0, {"z": 1, "a":2}]}`: `{"list":[1,2,3],"data":[3.0, {"z": 1, "a":2}]}`,
		`"{\"data\": {\"z\": 1, \"a\": 2}, \"n\": \"5\"}"`:        `{"data":{"z": 1, "a": 2},"n":5}`,
		`{"list": "[\"1\", 2.0]"}`:                                `{"list":[1,2]}`,
	} {
		text, value, wrong := MeantText([]byte(given), doc)
		if wrong != nil || string(text) != want {
			t.Errorf("%s is %s, not %s (%v)", given, text, want, wrong)
		} else if read := parsed(t, string(text)); !reflect.DeepEqual(read, value) {
			t.Errorf("%s: the text %s is another value than %v", given, text, value)
		}
	}
}
