package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// timeInto scans a time from either database: timestamptz as time.Time, microseconds since 1970 as
// int64, NULL as the zero time.
type timeInto struct{ dest *time.Time }

// Scan implements sql.Scanner.
func (t timeInto) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t.dest = time.Time{}
	case time.Time:
		*t.dest = v.UTC()
	case int64:
		*t.dest = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("a %T is no time", value)
	}
	return nil
}

// jsonInto scans a JSON column into any destination of json.Unmarshal.
type jsonInto struct{ dest any }

// Scan implements sql.Scanner. A raw message is not parsed: the database has checked that it is
// JSON.
func (j jsonInto) Scan(value any) error {
	var text []byte
	switch v := value.(type) {
	case string:
		text = []byte(v)
	case []byte:
		text = bytes.Clone(v) // the driver's own
	default:
		return fmt.Errorf("a %T is no JSON", value)
	}
	if raw, ok := j.dest.(*json.RawMessage); ok {
		*raw = text
		return nil
	}
	return jsonv2.Unmarshal(text, j.dest) // in half the time of encoding/json
}
