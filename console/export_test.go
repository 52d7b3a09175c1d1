package console

import (
	"encoding/json"
	"fmt"
)

// CheckParameters explains a schema, and says what is wrong with the explanation.
func CheckParameters(schema json.RawMessage) error {
	p := parametersOf(schema)
	if len(p.list) > maxParameters {
		return fmt.Errorf("%d parameters", len(p.list))
	}
	if example := exampleOf(schema); !json.Valid([]byte(example)) {
		return fmt.Errorf("the example is no JSON: %q", example)
	}
	return nil
}
