package logtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	tproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// VerifyProof verifies the file that proves an exec or an administrative event: the signature of
// the checkpoint, and each event's inclusion, by its salt and its bytes. It returns the events.
func VerifyProof(key string, file []byte) ([]json.RawMessage, error) {
	whole, err := members(file, "format")
	if err != nil {
		return nil, err
	}
	var format string
	if err := json.Unmarshal(whole["format"], &format); err != nil {
		return nil, err
	}
	switch format {
	case "secbox/admin-event-proof@v1":
		delete(whole, "format")
		one, err := json.Marshal(whole)
		if err != nil {
			return nil, err
		}
		event, err := verifyEvent(key, one)
		return []json.RawMessage{event}, err
	case "secbox/exec-proof@v1":
		if _, err := members(file, "format", "exec_id", "record", "events"); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the format %q is unknown", format)
	}
	var all, events []json.RawMessage
	if err := json.Unmarshal(whole["events"], &all); err != nil {
		return nil, err
	}
	for _, one := range all {
		event, err := verifyEvent(key, one)
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("no events")
	}
	return events, nil
}

// members returns the members of an object, which must include names. Names match exactly, unlike
// the fields of structs.
func members(object []byte, names ...string) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	for _, name := range names {
		if all[name] == nil {
			return nil, fmt.Errorf("there is no %s, but %q", name, slices.Sorted(maps.Keys(all)))
		}
	}
	return all, nil
}

func verifyEvent(key string, one []byte) (json.RawMessage, error) {
	all, err := members(one, "event", "salt", "tlog_proof")
	if err != nil {
		return nil, err
	}
	var texts [3]string
	for i, name := range []string{"event", "salt", "tlog_proof"} {
		if err := json.Unmarshal(all[name], &texts[i]); err != nil {
			return nil, err
		}
	}
	var p tproof.TLogProof
	if err := p.Unmarshal([]byte(texts[2])); err != nil {
		return nil, err
	}
	point, err := open(key, p.Checkpoint)
	if err != nil {
		return nil, err
	}
	salt, err := base64.StdEncoding.Strict().DecodeString(texts[1])
	if err != nil || len(salt) != sha256.Size {
		return nil, fmt.Errorf("a salt of %d bytes: %w", len(salt), err)
	}
	entry := sha256.Sum256(slices.Concat(salt, []byte(texts[0])))
	hashes := make([][]byte, len(p.Hashes))
	for i := range p.Hashes {
		hashes[i] = bytes.Clone(p.Hashes[i][:])
	}
	err = proof.VerifyInclusion(rfc6962.DefaultHasher, p.Index, point.Size, rfc6962.DefaultHasher.HashLeaf(entry[:]), hashes, point.Hash)
	return json.RawMessage(texts[0]), err
}
