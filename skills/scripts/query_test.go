//go:build unix

package scripts

import (
	"strings"
	"testing"
)

// TestQuery runs jq programs over data and files with every option.
func TestQuery(t *testing.T) {
	t.Parallel()
	r := inRow(t,
		`printf '{"n":1}\n{"n":2}\n[3]' > lines.json; printf 'a b\nc\n' > text.txt; mkdir -p 'ünï'; printf '"gr\xc3\xbc\xff"' > 'ünï/ÿ.json'; : > empty.json`)
	deep := any("end")
	for range 50 {
		deep = []any{deep}
	}
	for name, c := range map[string]struct {
		inputs object
		want   []any
	}{
		"data":            {object{"filter": ".a[]", "data": object{"a": []any{1, "ü", nil, 2.5}}}, []any{1, "ü", nil, 2.5}},
		"null":            {object{"filter": ".", "data": nil}, []any{nil}},
		"false":           {object{"filter": "not", "data": false}, []any{true}},
		"a string":        {object{"filter": "length", "data": "wörd\x00"}, []any{5}},
		"nothing":         {object{"filter": "empty", "data": 1}, []any{}},
		"file":            {object{"filter": ".n?", "path": "lines.json"}, []any{1, 2}},
		"slurp":           {object{"filter": "length", "path": "lines.json", "slurp": true}, []any{3}},
		"null input":      {object{"filter": "[inputs]|length", "path": "lines.json", "null_input": true}, []any{3}},
		"no input":        {object{"filter": "[1,2]|add", "null_input": true}, []any{3}},
		"raw file":        {object{"filter": "split(\" \")", "path": "text.txt", "raw_input": true}, []any{[]string{"a", "b"}, []string{"c"}}},
		"raw data":        {object{"filter": ".", "data": "x\ny", "raw_input": true}, []any{"x", "y"}},
		"raw and slurp":   {object{"filter": ".", "path": "text.txt", "raw_input": true, "slurp": true}, []any{"a b\nc\n"}},
		"empty file":      {object{"filter": ".", "path": "empty.json"}, []any{}},
		"unicode, broken": {object{"filter": ".", "path": "ünï/ÿ.json"}, []any{"grü\ufffd"}},
		"definitions":     {object{"filter": "def f: . + 1; # a comment\nf | f # another", "data": 1}, []any{3}},
		"no environment":  {object{"filter": "$ENV | keys - [\"PATH\"]", "data": 1}, []any{[]any{}}},
		"like an option":  {object{"filter": "-1", "data": 1}, []any{-1}},
		"deep":            {object{"filter": "flatten[]", "data": deep}, []any{"end"}},
		"not a number":    {object{"filter": "nan, infinite", "data": 1}, []any{nil, 1.7976931348623157e308}},
	} {
		t.Run(name, func(t *testing.T) {
			out := r.with(t).uses("json.query", c.inputs)
			same(t, "results", out["results"], c.want)
			if out.at("truncated") != false {
				t.Errorf("truncated: %v", out)
			}
		})
	}
}

// TestQueryFails checks exit codes, messages and partial results of failing queries.
func TestQueryFails(t *testing.T) {
	t.Parallel()
	r := inRow(t, `printf '[1] {"a"' > half.json; mkfifo fifo; mkdir dir`)
	for name, c := range map[string]struct {
		inputs object
		code   float64
		says   string
		left   []any // nil: no outputs
	}{
		"no program":      {object{"filter": "..[", "data": 1}, 3, "compile error", []any{}},
		"option":          {object{"filter": "--help", "data": 1}, 3, "compile error", []any{}},
		"while it runs":   {object{"filter": ".[], error(\"oh\")", "data": []int{1, 2}}, 5, "oh", []any{1, 2}},
		"no JSON":         {object{"filter": ".", "path": "half.json"}, anyCode, "parse error", []any{[]int{1}}},
		"its own code":    {object{"filter": "1, (\"bye\" | halt_error(7))", "null_input": true}, 7, "bye", []any{1}},
		"both":            {object{"filter": ".", "data": 1, "path": "half.json"}, 2, "not both", nil},
		"neither":         {object{"filter": "."}, 2, "null_input", nil},
		"raw, no string":  {object{"filter": ".", "data": 1, "raw_input": true}, 2, "must be a string", nil},
		"FIFO":            {object{"filter": ".", "path": "fifo"}, 2, "neither a file nor a folder", nil},
		"folder":          {object{"filter": ".", "path": "dir"}, 2, "neither a file nor a folder", nil},
		"a module":        {object{"filter": `import "x" as x; 1`, "null_input": true}, anyCode, "module not found", []any{}},
		"unknown program": {object{"filter": "system(\"id\")", "null_input": true}, 3, "not defined", []any{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.with(t).useFails("json.query", c.inputs, c.code, c.says)
			if c.left == nil {
				same(t, "outputs", a["outputs"], nil)
			} else {
				same(t, "results", a.at("outputs.results"), c.left)
			}
		})
	}
	for field, inputs := range map[string]object{
		"inputs.filter":     {"data": 1},
		"inputs.path":       {"filter": ".", "path": 1},
		"inputs.raw_input":  {"filter": ".", "data": 1, "raw_input": "x"},
		"inputs.slurp":      {"filter": ".", "data": 1, "slurp": 0},
		"inputs.null_input": {"filter": ".", "null_input": nil},
	} {
		refusesInputs(t, "json.query", inputs, field)
	}
	refusesInputs(t, "json.query", object{"filter": "", "data": 1}, "inputs.filter")
}

// TestQueryALot is cut, also when it would never end.
func TestQueryALot(t *testing.T) {
	t.Parallel()
	r := inRow(t, "")
	for filter, n := range map[string]int{
		"repeat(1)": 100000, `range(1000000) | "` + strings.Repeat("x", 998) + `\(. % 10)"`: 2092, `"x" * 3000000`: 0,
		"range(100001)": 100000,
	} {
		out := r.uses("json.query", object{"filter": filter, "null_input": true})
		results, _ := out["results"].([]any)
		if len(results) != n || out.at("truncated") != true {
			t.Errorf("%.20s: %d results, truncated %v", filter, len(results), out["truncated"])
		}
	}
	out := r.uses("json.query", object{"filter": "range(100000)", "null_input": true})
	if results, _ := out["results"].([]any); len(results) != 100000 || out.at("truncated") != false {
		t.Errorf("what just fits: %d, truncated %v", len(results), out["truncated"])
	}
}
