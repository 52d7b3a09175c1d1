package settings

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
)

// Redacted returns the settings that are set, by key, without the text of secrets.
func (s Settings) Redacted() map[string]any {
	out := map[string]any{}
	for _, row := range table() {
		v := row.in(&s)
		switch {
		case v.Type() == reflect.TypeFor[Secret]():
			if row.envOnly {
				if v.String() != "" {
					out[row.key] = Secret(v.String()).String()
				}
				continue
			}
			out[row.key] = withoutPassword(s.DatabaseURL)
		case v.Kind() == reflect.Pointer:
			if !v.IsNil() {
				out[row.key] = v.Elem().Interface()
			}
		case v.Kind() == reflect.Map:
			if secrets, ok := v.Interface().(JobSecrets); ok && v.Len() > 0 {
				out[row.key] = secrets.redacted()
			} else if v.Len() > 0 {
				out[row.key] = v.Interface()
			}
		case v.Kind() == reflect.Slice:
			// An empty fs list allows nothing, and a missing one is not set; any other empty list
			// is not set.
			if v.Len() > 0 || !v.IsNil() && isFS(row.key) {
				out[row.key] = slices.Clone(v.Interface().([]string))
			}
		default:
			out[row.key] = v.Interface()
		}
	}
	return out
}

func isFS(key string) bool {
	return key == "sandbox.policy.fs.read" || key == "sandbox.policy.fs.write"
}

// Digest identifies the effective settings: "sha256:" and the hash of their canonical JSON, keys
// sorted. Secrets are left out, so a new password or token does not change it.
func (s Settings) Digest() string {
	effective := s.Redacted()
	for _, row := range table() {
		if row.envOnly { // a secret
			delete(effective, row.key)
		}
	}
	data, err := json.Marshal(effective)
	if err != nil { // cannot happen: there are only text, lists and numbers, and NaN was refused
		data = fmt.Appendf(nil, "%v", effective)
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Fingerprints returns the HMAC-SHA256 of each setting's value, secrets among them, by key of the
// setting. Without the HMAC's key, which must be random, they do not tell the values.
func (s Settings) Fingerprints(key []byte) map[string]string {
	out := map[string]string{}
	for _, row := range table() {
		v := row.in(&s)
		value := v.Interface()
		if v.Type() == reflect.TypeFor[Secret]() {
			value = v.String() // JSON would hide it
		}
		text, err := json.Marshal(value)
		if err != nil { // cannot happen, see Digest
			text = fmt.Appendf(nil, "%v", value)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(row.key + "\n"))
		mac.Write(text)
		out[row.key] = hex.EncodeToString(mac.Sum(nil))
	}
	return out
}

// LogValue makes logs show Redacted.
func (s Settings) LogValue() slog.Value {
	redacted := s.Redacted()
	attrs := make([]slog.Attr, 0, len(redacted))
	for _, key := range slices.Sorted(maps.Keys(redacted)) {
		attrs = append(attrs, slog.Any(key, redacted[key]))
	}
	return slog.GroupValue(attrs...)
}
