package visible

import "time"

// Micros is the format of times in the API: RFC 3339 in UTC with microseconds, the precision of
// both databases.
const Micros = "2006-01-02T15:04:05.000000Z"

// Timestamp is a time in the format of the API.
type Timestamp time.Time

// MarshalJSON writes the time in UTC with microseconds.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format(`"` + Micros + `"`)), nil
}

// UnmarshalJSON reads any RFC 3339 time.
func (t *Timestamp) UnmarshalJSON(text []byte) error { return (*time.Time)(t).UnmarshalJSON(text) }
