package api

import (
	"testing"

	"secbox/access/tokens"
	"secbox/api/decode"
	"secbox/api/wire"
)

// TestTaskRefs: a reference is an object or only the task's id.
func TestTaskRefs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		`"t1"`: {"t1", ""}, `{"task_id": "t1"}`: {"t1", ""}, `{"task_id": "t1", "conversation_id": "c1"}`: {"t1", "c1"}, `{}`: {"", ""},
		`{"conversation_id": "c1"}`: {"", "c1"},
	} {
		var body wire.ExecRequest
		if err := decode.Strict([]byte(`{"project_id": "p", "exec": {"kind": "shell", "command": "bash"}, "task_ref": `+text+`}`), &body); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		req, err := execRequest(body, false, nil, tokens.Token{ID: "t", Role: tokens.Worker})
		if err != nil || req.TaskID != want[0] || req.ConversationID != want[1] {
			t.Errorf("%s: %q %q %v, want %q", text, req.TaskID, req.ConversationID, err, want)
		}
	}
	for _, text := range []string{`7`, `["t1"]`, `null`, `{"task": "t1"}`, `{"task_id": 7}`} {
		var body wire.ExecRequest
		if err := decode.Strict([]byte(`{"task_ref": `+text+`}`), &body); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
