package decode

import (
	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/policy"
)

// TaskRef is the caller's own reference to an exec.
type TaskRef struct {
	TaskID         string `json:"task_id,omitempty"`
	ConversationID string `json:"conversation_id,omitempty"`
}

// UnmarshalJSONFrom reads an object, or a string that is the task's id.
func (t *TaskRef) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == jsontext.KindString {
		return strictjson.UnmarshalDecode(dec, &t.TaskID)
	}
	type plain TaskRef
	return strictjson.UnmarshalDecode(dec, (*plain)(t))
}

// Into sets the ids of the task and the conversation of a request. refuse gets a field that is
// wrong.
func (t *TaskRef) Into(taskID, conversationID *string, refuse func(field, format string, args ...any)) {
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

// PolicyOverrides is a layer of the policy whose dotted names may also be nested.
type PolicyOverrides struct {
	policy.Layer
	Net struct {
		Mode  *string  `json:"mode,omitempty"`
		Allow []string `json:"allow,omitzero"`

		Credentials []policy.Credential `json:"credentials,omitzero"`
	} `json:"net,omitzero"`
	FS struct {
		Read  []string `json:"read,omitzero"`
		Write []string `json:"write,omitzero"`
	} `json:"fs,omitzero"`
}
