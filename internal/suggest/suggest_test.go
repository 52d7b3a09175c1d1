package suggest_test

import (
	"strings"
	"testing"

	"secbox/internal/suggest"
)

func TestClose(t *testing.T) {
	t.Parallel()
	fields := []string{"project_id", "conversation_id", "exec", "inputs"}
	for word, want := range map[string]string{
		"projekt_id": "project_id", "Project_id": "project_id", "input": "inputs", "exce": "exec", "x": "", "": "", "something": "",
		strings.Repeat("x", 1000): "",
	} {
		if got := suggest.Close(word, fields); got != want {
			t.Errorf("%.20s: %q, want %q", word, got, want)
		}
	}
	if got := suggest.Close("x", nil); got != "" {
		t.Error(got)
	}
}
