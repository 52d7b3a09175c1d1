package api

import (
	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// taskRef is the caller's own reference to an exec.
type taskRef struct {
	TaskID         string `json:"task_id,omitempty"`
	ConversationID string `json:"conversation_id,omitempty"`
}

// UnmarshalJSONFrom reads an object, or a string that is the task's id.
func (t *taskRef) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == jsontext.KindString {
		return strictjson.UnmarshalDecode(dec, &t.TaskID)
	}
	type plain taskRef
	return strictjson.UnmarshalDecode(dec, (*plain)(t))
}

// into sets the ids of the task and the conversation of a request.
func (t *taskRef) into(taskID, conversationID *string, refuse refusal) {
	if t == nil {
		return
	}
	*taskID = t.TaskID
	switch {
	case *conversationID == "":
		*conversationID = t.ConversationID
	case t.ConversationID != "" && t.ConversationID != *conversationID:
		refuse("task_ref.conversation_id", "differs from conversation_id; give one of them")
	}
}
