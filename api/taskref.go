package api

import (
	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// taskRef is what a caller knows an exec by.
type taskRef struct {
	TaskID         string `json:"task_id,omitempty"`
	ConversationID string `json:"conversation_id,omitempty"`
}

// UnmarshalJSONFrom reads an object, or the task's id alone.
func (t *taskRef) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == jsontext.KindString {
		return strictjson.UnmarshalDecode(dec, &t.TaskID)
	}
	type plain taskRef
	return strictjson.UnmarshalDecode(dec, (*plain)(t))
}

// into puts the task's and the conversation's id where a request has them.
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
