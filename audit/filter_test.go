package audit_test

import (
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// TestParseTime: a time in RFC 3339, a date or an age; the refusal explains a + that an address
// lost, and nothing else about addresses.
func TestParseTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 6, 50, 31, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"2026-11-18":                time.Date(2026, 11, 18, 0, 0, 0, 0, time.UTC),
		"2026-11-18T01:02:03+01:00": time.Date(2026, 11, 18, 0, 2, 3, 0, time.UTC),
		"2026-11-18T01:02:03.5Z":    time.Date(2026, 11, 18, 1, 2, 3, 500_000_000, time.UTC),
		"today":                     time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
		"7d":                        now.AddDate(0, 0, -7),
	} {
		var bad fault.Fields
		if got := audit.ParseTime("since", text, now, &bad); !got.Equal(want) || bad.Err() != nil {
			t.Errorf("%q: %s, %v", text, got, bad.Err())
		}
	}
	for text, hint := range map[string]bool{
		"tomorrow": false, "Today": false, "2026-02-30": false, "0000-01-01": false, "0001-01-01T00:00:00Z": false, "2026-11-18 01:02:03": false,
		"2026-11-18T01:02:03 ": false, "2026-11-18T01:02:03 01:00": true,
	} {
		var bad fault.Fields
		audit.ParseTime("since", text, now, &bad)
		if err := bad.Err(); err == nil || !strings.Contains(err.Error(), "must be a date like") || strings.Contains(err.Error(), "%2B") != hint {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTraceID checks that the filter refuses an id that no exec can have, and reads capital letters
// as small ones.
func TestTraceID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", strings.Repeat("a1", 16): strings.Repeat("a1", 16), strings.Repeat("A1", 16): strings.Repeat("a1", 16),
		"zz": "refused", strings.Repeat("z1", 16): "refused", strings.Repeat("a1", 15): "refused", strings.Repeat("a1", 17): "refused",
	} {
		var bad fault.Fields
		f := audit.ParseFilter(func(name string) string { return map[string]string{"trace_id": text}[name] }, time.Now(), &bad)
		if err := bad.Err(); want == "refused" && err == nil || want != "refused" && (err != nil || f.TraceID != want) {
			t.Errorf("%q: %q, %v", text, f.TraceID, err)
		}
	}
}
