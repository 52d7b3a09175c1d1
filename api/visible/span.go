package visible

import (
	"time"

	"secbox/audit"
	"secbox/audit/report"
	"secbox/fault"
)

// defaultSpan is how long the span of a report without a begin is.
const defaultSpan = 24 * time.Hour

// ParseSpan returns the span of a report by the parameters since and until. get returns a parameter
// by its name, empty if it is absent. fault.InvalidRequest names the wrong ones.
func ParseSpan(get func(name string) string, now time.Time) (report.Span, error) {
	var bad fault.Fields
	span := report.Span{Since: audit.ParseTime("since", get("since"), now, &bad), Until: audit.ParseTime("until", get("until"), now, &bad)}
	if span.Until.IsZero() || span.Until.After(now) {
		span.Until = now.UTC().Truncate(time.Microsecond)
	}
	if get("since") == "" {
		span.Since = span.Until.Add(-defaultSpan)
	}
	if bad.Err() == nil && !span.Until.After(span.Since) {
		bad.Add("since", "must be before until, and not in the future")
	}
	return span, bad.Err()
}
