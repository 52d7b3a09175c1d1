package feishu

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"secbox/fault"
)

// ReceiverTypes are the kinds of ids that Send takes.
var ReceiverTypes = []string{"chat_id", "open_id", "union_id", "user_id", "email"}

// Send sends an uploaded file to a chat or a user, and returns the message's id.
// fault.OutcomeUnknown when the connection broke: it may have been sent.
func (c *Client) Send(ctx context.Context, file Uploaded, receiverType, receiver string) (string, error) {
	if err := CheckReceiver(receiverType, receiver); err != nil {
		return "", err
	}
	if file.Key == "" {
		return "", badArgument("receive_id", "a file in the drive cannot be sent in a message")
	}
	key := "file_key"
	if file.messageType == "image" {
		key = "image_key"
	}
	text, err := json.Marshal(map[string]string{key: file.Key})
	if err != nil {
		return "", err
	}
	var got struct {
		ID string `json:"message_id"`
	}
	err = c.call(ctx, &got, c.post("/open-apis/im/v1/messages?receive_id_type="+receiverType, map[string]string{
		"receive_id": receiver, "msg_type": file.messageType, "content": string(text),
		"uuid": rand.Text(), // Feishu sends one message per uuid, however often it is asked
	}))
	var known *fault.Error
	if errors.As(err, &known) && known.Code == fault.UpstreamFailed && known.Err != nil {
		return "", fault.Wrap(fault.OutcomeUnknown, err,
			"Feishu's answer was lost: the message may have been sent; look into the chat before you send it again")
	}
	return got.ID, checkAnswer(got.ID, err)
}

// CheckReceiver refuses what cannot receive a message.
func CheckReceiver(receiverType, receiver string) error {
	if !slices.Contains(ReceiverTypes, receiverType) {
		return badArgument("receive_id_type", "must be one of %s", strings.Join(ReceiverTypes, ", "))
	}
	if receiver == "" || len(receiver) > maxIDBytes || strings.ContainsFunc(receiver, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return badArgument("receive_id", "must be an id of the type %s", receiverType)
	}
	return nil
}
