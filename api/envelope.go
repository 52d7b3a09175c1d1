package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"secbox/fault"
)

// v1Prefix is where the routes begin whose answers, errors too, come in the envelope {"status", "data"} that their clients know.
const v1Prefix = "/v1/"

// What an envelope says first.
const (
	saysSuccess = "success"
	saysError   = "error"
)

// inEnvelope tells by the path as it was asked for, so that it holds of unknown routes and refused callers too.
func inEnvelope(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, v1Prefix) }

// enveloped is an error as these routes tell it.
func enveloped(e *fault.Error) []byte {
	doc := V1Error{Status: saysError, Data: V1Refusal{Code: e.Code, Message: strings.ToValidUTF8(e.Message, "\uFFFD"), Errors: e.Fields}}
	body, err := json.Marshal(doc)
	if err != nil { // a value in Asked or Ceiling that JSON cannot say
		doc.Data.Errors = nil
		body, _ = json.Marshal(doc)
	}
	return append(body, '\n')
}

// said is a success that is one text.
func said(text string) V1Message { return V1Message{Status: saysSuccess, Data: text} }
