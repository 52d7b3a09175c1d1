package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the texts and lists of a record, in bytes, for a list of its JSON. Kernels accept 128
// KiB for one argument, so the longest script is kept whole.
const (
	largeList = 4 << 10 // a larger list is described in Record.LargeLists
	mostArgs  = 136 << 10
	mostList  = 32 << 10 // of inputs, of env_keys and of env_hmacs
	mostText  = 4 << 10  // of cmd, cwd and detail
	mostLabel = 255      // of ids that the caller chooses
)

// LargeList describes a list that is too large to be repeated in every event. When Kept is less
// than Count, the list was too large for the record and was cut.
type LargeList struct {
	Count  int    `json:"count"`  // entries of the whole list
	Kept   int    `json:"kept"`   // of them, from the first on
	SHA256 string `json:"sha256"` // of the whole list, as canonical JSON (RFC 8785)
}

// bounded cuts texts and lists that are too large for a record; more so for a refused request. It
// is idempotent.
func bounded(r Record, refused bool) Record {
	r = boundedTexts(r)
	if r.LargeLists != nil { // bounded before
		return r
	}
	args, list := mostArgs, mostList
	if refused {
		args, list = largeList, largeList
	}
	large := map[string]LargeList{}
	r.Args = boundList(large, "args", r.Args, args, appendText)
	r.EnvKeys = boundList(large, "env_keys", r.EnvKeys, list, appendText)
	r.EnvHMACs = boundList(large, "env_hmacs", r.EnvHMACs, list, appendText)
	r.Inputs = boundList(large, "inputs", r.Inputs, list, appendInput)
	if len(large) > 0 {
		r.LargeLists = large
	}
	return r
}

// boundedTexts is bounded without the lists, which Close does not write.
func boundedTexts(r Record) Record {
	for _, s := range []*string{&r.Cmd, &r.Cwd, &r.Detail} {
		*s = boundText(*s, mostText)
	}
	for _, s := range []*string{&r.ProjectID, &r.TaskID, &r.ConversationID, &r.AgentID, &r.UserID, &r.SkillID, &r.Image} {
		*s = boundText(*s, mostLabel)
	}
	return r
}

// boundList returns the entries of a list that fit into most bytes, and adds a large list to large.
func boundList[T any](large map[string]LargeList, name string, list []T, most int, appendJSON func([]byte, T) []byte) []T {
	var digest hash.Hash
	var entry []byte
	size, kept := len("[]"), 0
	for i, v := range list {
		entry = appendJSON(append(entry[:0], ','), v)
		if i == 0 {
			entry = entry[1:]
		}
		size += len(entry)
		if size <= most {
			kept = i + 1
		}
		if size > largeList && digest == nil {
			digest = digestOf(list[:i], appendJSON)
		}
		if digest != nil {
			digest.Write(entry)
		}
	}
	if digest == nil {
		return list
	}
	digest.Write([]byte("]"))
	large[name] = LargeList{Count: len(list), Kept: kept, SHA256: hex.EncodeToString(digest.Sum(nil))}
	return list[:kept:kept]
}

// digestOf starts the digest of a list with its first entries.
func digestOf[T any](first []T, appendJSON func([]byte, T) []byte) hash.Hash {
	digest := sha256.New()
	text := []byte("[")
	for i, v := range first {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendJSON(text, v)
	}
	digest.Write(text)
	return digest
}

func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the error reports invalid UTF-8, which was replaced as in the databases
	return b
}

func appendInput(b []byte, in Input) []byte {
	b = append(b, '{')
	if in.Mode != "" {
		b = append(appendText(append(b, `"mode":`...), in.Mode), ',')
	}
	b = appendText(append(b, `"path":`...), in.Path)
	b = appendText(append(b, `,"sha256":`...), in.SHA256)
	return append(strconv.AppendInt(append(b, `,"size":`...), in.Size, 10), '}')
}

// boundText cuts a text and appends a note.
func boundText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	note := fmt.Sprintf("… [cut: %d bytes]", len(s))
	return strings.ToValidUTF8(s[:most-len(note)], "") + note
}

// Brief is the record in the events after the first one: without its large lists, which cannot
// change and are in the first.
func (r Record) Brief() Record {
	if len(r.LargeLists) == 0 {
		return r
	}
	brief := make(map[string]LargeList, len(r.LargeLists))
	for name, l := range r.LargeLists {
		l.Kept = 0
		brief[name] = l
		switch name {
		case "args":
			r.Args = []string{}
		case "env_keys":
			r.EnvKeys = []string{}
		case "env_hmacs":
			r.EnvHMACs = []string{}
		case "inputs":
			r.Inputs = []Input{}
		}
	}
	r.LargeLists = brief
	return r
}

// Size is the approximate size of a record in bytes.
func (r Record) Size() int {
	n := 1<<10 + len(r.PolicySnapshot) + len(r.Cmd) + len(r.Cwd) + len(r.Detail) + len(r.Request)
	for _, s := range r.Args {
		n += len(s)
	}
	for _, s := range r.EnvKeys {
		n += len(s)
	}
	for _, s := range r.EnvHMACs {
		n += len(s)
	}
	for _, in := range r.Inputs {
		n += len(in.Path) + len(in.SHA256)
	}
	return n
}
