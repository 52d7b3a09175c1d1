package session

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// ResultsFile is where a cell of Python leaves the values that it shows, among its artifacts: a
// list of objects with the fields data and files, each by media type.
const ResultsFile = "results.json"

// mostNested is how deep values of results may be nested: further than people's data, and no
// trouble to the parsers of clients.
const mostNested = 100

// ValidResults reports whether a ResultsFile, which any command may have written, has results.
func ValidResults(content []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(content))
	for {
		if _, err := d.ReadToken(); err != nil {
			break // of the syntax, or the end; what follows knows which
		}
		if d.StackDepth() > mostNested {
			return false
		}
	}
	var results []*struct {
		Data  map[string]json.RawMessage `json:"data"`
		Files map[string]string          `json:"files"`
	}
	of := json.NewDecoder(bytes.NewReader(content))
	of.DisallowUnknownFields()
	if of.Decode(&results) != nil || results == nil || of.More() {
		return false
	}
	for _, r := range results {
		if r == nil || r.Data == nil {
			return false
		}
	}
	return json.Valid(content)
}
