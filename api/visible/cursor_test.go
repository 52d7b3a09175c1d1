package visible

import (
	"strings"
	"testing"

	"secbox/audit"
	"secbox/fault"
)

// TestCursorIsBoundToItsList checks that a cursor is refused for another list.
func TestCursorIsBoundToItsList(t *testing.T) {
	t.Parallel()
	c := audit.Cursor{ExecID: "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"}
	for _, list := range []string{"", "status=failed"} {
		if got, err := DecodeCursor(EncodeCursor(c, list), list); err != nil || !got.CreatedAt.Equal(c.CreatedAt) || got.ExecID != c.ExecID {
			t.Errorf("%q: %v, %v", list, got, err)
		}
		if _, err := DecodeCursor(EncodeCursor(c, list), "status=lost"); !fault.Is(err, fault.InvalidCursor) {
			t.Errorf("a cursor of %q was taken for another list: %v", list, err)
		}
	}
}

// FuzzCursor checks that only cursors of this server are accepted.
func FuzzCursor(f *testing.F) {
	f.Add(EncodeCursor(audit.Cursor{ExecID: "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"}, ""))
	for _, seed := range []string{"", "e30", "!!", "bnVsbA", "eyJjcmVhdGVkX2F0IjoiIiwiZXhlY19pZCI6IiJ9", strings.Repeat("A", 600)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := DecodeCursor(s, "")
		if err != nil {
			if !fault.Is(err, fault.InvalidCursor) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if back := EncodeCursor(*c, ""); back != s {
			t.Fatalf("took %q, which is really %q", s, back)
		}
	})
}
