package tools

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"

	"secbox/mcp/feishu"
	"secbox/sandbox"
)

// The names of the tools that are on record under them.
const (
	feishuDownloadTool = "feishu.download"
	feishuUploadTool   = "feishu.upload"
)

// feishuTools are offered in sessions with WithFeishu, and work only there.
var feishuTools = []*Tool{
	openWorld(define(feishuDownloadTool, "Download from Feishu", feishuDownloadDescription, false, (*Session).FeishuDownload)),
	openWorld(define(feishuUploadTool, "Upload to Feishu", feishuUploadDescription, false, (*Session).FeishuUpload)),
}

func openWorld(t *Tool) *Tool {
	t.OpenWorld = true
	return t
}

const (
	feishuDownloadDescription = `Downloads a file or image of a Feishu message, or a file of Feishu's drive, into the user's workspace. It needs either message_id and file_key, or file_token. ` +
		`Parent directories are made; an existing file is replaced.`
	feishuUploadDescription = `Uploads a file of the user's workspace to Feishu and, with receive_id, sends it in a message to that chat or user. Files of more than 30 MiB go to a folder of Feishu's drive and cannot be sent.`
)

// FeishuDownloadParams are the arguments of FeishuDownload.
type FeishuDownloadParams struct {
	MessageID string `json:"message_id,omitempty" jsonschema:"the message with the file: om_…"`
	FileKey   string `json:"file_key,omitempty" jsonschema:"the file or image in the message: file_… or img_…"`
	Type      string `json:"type,omitempty" jsonschema:"image for an image in a message; else file, which is the default, also for audio and video"`
	FileToken string `json:"file_token,omitempty" jsonschema:"a file in Feishu's drive"`
	Path      string `json:"path" jsonschema:"the file to write: relative to the current directory, or absolute below /workspace"`
}

// FeishuDownload writes a file of Feishu into the workspace. Its Meta has path, sha256, size and
// exec_id, the record.
func (s *Session) FeishuDownload(ctx context.Context, p FeishuDownloadParams) (*Result, error) {
	if (p.FileToken == "") == (p.MessageID == "" && p.FileKey == "") {
		return nil, badArgument("message_id", "give either message_id and file_key, or file_token")
	}
	full := path.Clean(s.resolve(p.Path))
	from := feishu.Resource{MessageID: p.MessageID, FileKey: p.FileKey, Type: cmp.Or(p.Type, "file"), FileToken: p.FileToken}
	if err := from.Check(); err != nil {
		return nil, err
	}
	var got feishu.Downloaded
	change := sandbox.Change{
		User: s.user, Tool: feishuDownloadTool, Path: full,
		Args: []string{"from", from.MessageID, from.FileKey, from.FileToken},
	}
	execID, err := s.record(ctx, change, func(ctx context.Context, user sandbox.User) (_ sandbox.Digests, err error) {
		got, err = s.feishu.Download(ctx, from, s.sandbox, full, user)
		return sandbox.Digests{After: got.SHA256, Size: got.Bytes}, err
	})
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	return &Result{
		Text: fmt.Sprintf("wrote %s: %d bytes\nsha256: %s\n", quote(full), got.Bytes, got.SHA256),
		Meta: map[string]any{"path": full, "sha256": got.SHA256, "size": got.Bytes, "exec_id": execID},
	}, nil
}

// FeishuUploadParams are the arguments of FeishuUpload.
type FeishuUploadParams struct {
	Path          string `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
	Name          string `json:"name,omitempty" jsonschema:"its name in Feishu; the file's own if left out"`
	Image         bool   `json:"image,omitempty" jsonschema:"true to show it as an image in the message (up to 10 MiB)"`
	Folder        string `json:"folder,omitempty" jsonschema:"token of a folder in Feishu's drive, for a file of more than 30 MiB"`
	ReceiveID     string `json:"receive_id,omitempty" jsonschema:"the chat or user to send the file to; left out: it is only uploaded"`
	ReceiveIDType string `json:"receive_id_type,omitempty" jsonschema:"what receive_id is: chat_id, which is the default, open_id, union_id, user_id or email"`
}

// FeishuUpload uploads a file of the workspace, and sends it if the parameters say to whom. Its
// Meta has size and sha256 of what was sent, exec_id, file_key or file_token, and message_id.
func (s *Session) FeishuUpload(ctx context.Context, p FeishuUploadParams) (*Result, error) {
	receiverType := cmp.Or(p.ReceiveIDType, "chat_id")
	if p.ReceiveID != "" {
		if err := feishu.CheckReceiver(receiverType, p.ReceiveID); err != nil {
			return nil, err
		}
		if p.Folder != "" {
			return nil, badArgument("folder", "a file in the drive cannot be sent in a message; leave out folder or receive_id")
		}
	}
	if p.Folder != "" {
		if err := callerOf(ctx).reserve(feishu.MaxBlockBytes); err != nil {
			return nil, err
		}
	}
	full := s.resolve(p.Path)
	var file feishu.Uploaded
	var message string
	change := sandbox.Change{User: s.user, Tool: feishuUploadTool, Path: full, Args: []string{"to", p.Folder, p.ReceiveID}}
	execID, err := s.record(ctx, change, func(ctx context.Context, user sandbox.User) (_ sandbox.Digests, err error) {
		if file, err = s.feishu.Upload(ctx, feishu.Upload{Path: full, Name: p.Name, Image: p.Image, Folder: p.Folder}, s.sandbox,
			user); err == nil && p.ReceiveID != "" {
			message, err = s.feishu.Send(ctx, file, receiverType, p.ReceiveID)
		}
		return sandbox.Digests{Before: file.SHA256, Sent: file.Bytes}, err
	})
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	var b strings.Builder
	meta := map[string]any{"size": file.Bytes, "sha256": file.SHA256, "exec_id": execID}
	fmt.Fprintf(&b, "uploaded %s: %d bytes\nsha256: %s\n", quote(full), file.Bytes, file.SHA256)
	for _, id := range []struct{ name, value string }{{"file_key", file.Key}, {"file_token", file.Token}, {"message_id", message}} {
		if id.value != "" {
			meta[id.name] = id.value
			fmt.Fprintf(&b, "%s: %s\n", id.name, quote(id.value))
		}
	}
	if message != "" {
		fmt.Fprintf(&b, "sent to %s\n", quote(p.ReceiveID))
	}
	return &Result{Text: b.String(), Meta: meta}, nil
}
