package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"secbox/audit"
	"secbox/fault"
)

// PostgreSQL stores neither NUL nor broken UTF-8, and its jsonb no escaped NUL and no half of a surrogate pair. A record that has
// them must not be lost for that, and must read the same from both databases. So on the way in a NUL becomes the visible ␀
// (U+2400) and every broken sequence U+FFFD; on both.

// Text makes a string storable.
func Text(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\u2400")
}

// Clean makes every string of a record storable and cuts its times to the microseconds that are kept. It fails only on a policy
// snapshot that is no JSON.
func Clean(r audit.Record) (audit.Record, error) {
	for _, s := range []*string{
		&r.ExecID, &r.ProjectID, &r.TaskID, &r.ConversationID, &r.AgentID, &r.UserID, &r.SkillID, &r.SkillDigest, &r.Image, &r.ImageID, &r.Cmd, &r.Cwd,
		(*string)(&r.Status), (*string)(&r.ErrorReason), &r.Detail, &r.ArtifactsPath, &r.ManifestDigest, &r.NodeID, &r.Backend, &r.Runner,
		&r.RequestedBy, &r.RequestDigest, &r.IdempotencyKey, &r.SettingsDigest,
	} {
		*s = Text(*s)
	}
	r.Args = Texts(r.Args)
	r.EnvKeys = Texts(r.EnvKeys)
	inputs := make([]audit.Input, len(r.Inputs))
	for i, in := range r.Inputs {
		inputs[i] = audit.Input{Path: Text(in.Path), Size: in.Size, SHA256: Text(in.SHA256)}
	}
	r.Inputs = inputs
	for _, t := range []*time.Time{&r.CreatedAt, &r.StartedAt, &r.EndedAt} {
		*t = t.UTC().Truncate(time.Microsecond)
	}
	snapshot, err := cleanJSON(r.PolicySnapshot)
	if err != nil {
		return audit.Record{}, fault.Wrap(fault.Internal, fmt.Errorf("policy snapshot of %s: %w", r.ExecID, err), "the exec could not be recorded")
	}
	r.PolicySnapshot = snapshot
	return r, nil
}

// Texts is Text for a list; a nil one becomes empty, as it will be read back.
func Texts(values []string) []string {
	cleaned := make([]string, len(values))
	for i, v := range values {
		cleaned[i] = Text(v)
	}
	return cleaned
}

// cleanJSON makes a JSON document storable as jsonb. A document without any escape that could hide something is left as it is.
func cleanJSON(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, fmt.Errorf("no valid JSON")
	}
	if utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u`)) {
		return raw, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw)) // replaces what is broken
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(withoutNUL(v)); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func withoutNUL(v any) any {
	switch v := v.(type) {
	case string:
		return Text(v)
	case []any:
		for i := range v {
			v[i] = withoutNUL(v[i])
		}
		return v
	case map[string]any:
		cleaned := make(map[string]any, len(v))
		for name, value := range v {
			cleaned[Text(name)] = withoutNUL(value)
		}
		return cleaned
	}
	return v
}
