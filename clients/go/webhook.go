package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Webhook is what core-api sends when an exec has ended.
type Webhook struct {
	ID   string `json:"-"` // the same when it is sent again
	Type string `json:"type"`
	Data State  `json:"data"`
}

// webhookAge is how far the clocks may differ.
const webhookAge = 5 * time.Minute

// VerifyWebhook checks that core-api has sent a webhook (Standard Webhooks), with the secret of
// POST /webhooks/secret, and returns it. For a day after a new secret the server signs with both.
func VerifyWebhook(secret string, header http.Header, body []byte, now time.Time) (Webhook, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return Webhook{}, errors.New("the secret is not one of core-api: it begins with whsec_")
	}
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" {
		return Webhook{}, errors.New("the request is not a webhook: webhook-id or webhook-timestamp is missing")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > webhookAge || age < -webhookAge {
		return Webhook{}, errors.New("the webhook is too old, or a clock is wrong")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		text, ok := strings.CutPrefix(signature, "v1,")
		given, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && hmac.Equal(given, want) {
			hook := Webhook{ID: id}
			err := json.Unmarshal(body, &hook)
			return hook, err
		}
	}
	return Webhook{}, errors.New("the webhook is not signed with this secret")
}
