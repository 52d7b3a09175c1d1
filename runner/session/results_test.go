package session_test

import (
	"strings"
	"testing"

	"secbox/runner/session"
)

func TestValidResults(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{
		`[]`: true,
		`[{"data":{"text/plain":"1"}},{"data":{"application/json":{"a":[1e400,null]}},"files":{"image/png":"result-2.png"}}]`: true,
		" [{\"data\": {}}]\n": true,
		`[{"data":{"application/json":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}}]`:     true,
		`[{"data":{"application/json":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}}]`: false,
		`{}`: false, `null`: false, `[1]`: false, `[null]`: false, `[{}]`: false, `[{"data":5}]`: false, `[{"data":{},"evil":1}]`: false,
		`[{"data":{},"files":{"a":1}}]`: false, `[] x`: false, `[][]`: false, `[NaN]`: false, `[{"data":{"application/json":NaN}}]`: false,
		``: false, `[`: false,
	} {
		if got := session.ValidResults([]byte(content)); got != want {
			t.Errorf("%.60s: %v", content, got)
		}
	}
}
