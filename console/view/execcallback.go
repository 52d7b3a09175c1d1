package view

import (
	"fmt"
	"net/http"
	"strings"

	"secbox/runner/webhooks"
)

// callbackState says how far a webhook is.
func callbackState(d webhooks.Delivery) string {
	switch d.Now() {
	case webhooks.Open:
		return "waits for the end of the exec"
	case webhooks.Due:
		return "due: it is repeated until the service answers 2xx"
	case webhooks.Sending:
		return "being sent: the service may have it"
	case webhooks.Delivered:
		return "delivered"
	case webhooks.Failed:
		return "failed: no try is left, or the service answered 410"
	}
	return string(d.State)
}

// answerOf says what a try got.
func answerOf(t webhooks.Try) string {
	if t.Status == 0 {
		return t.Error
	}
	answer := strings.TrimSpace(fmt.Sprintf("%d %s", t.Status, http.StatusText(t.Status)))
	if t.Error != "" {
		answer += ": " + t.Error
	}
	return answer
}
