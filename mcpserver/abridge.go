package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"secbox/audit"
)

// headAndTail is a text of at most most bytes: its beginning, a word about what is left out, and its end.
func headAndTail(text string, most int) string {
	const word = 60
	if len(text) <= most {
		return text
	}
	room := max(0, most-word)
	head, tail := room-room/3, room/3
	return strings.ToValidUTF8(text[:head], "") + fmt.Sprintf("\n… %d bytes left out …\n", len(text)-head-tail) +
		strings.ToValidUTF8(text[len(text)-tail:], "")
}

// abridged is a JSON text in which long strings are shortened until it has at most most bytes; nil when that does not help.
func abridged(outputs []byte, most int) json.RawMessage {
	if len(outputs) <= most {
		return outputs
	}
	for longest := most / 2; longest >= 128; longest /= 2 {
		d := json.NewDecoder(bytes.NewReader(outputs))
		d.UseNumber()
		var value any
		if d.Decode(&value) != nil {
			return nil
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if e.Encode(shortened(value, longest)) != nil {
			return nil
		}
		if short := bytes.TrimSpace(b.Bytes()); len(short) <= most {
			return short
		}
	}
	return nil
}

func shortened(value any, longest int) any {
	switch v := value.(type) {
	case string:
		return headAndTail(v, longest)
	case []any:
		for n := range v {
			v[n] = shortened(v[n], longest)
		}
	case map[string]any:
		for name := range v {
			v[name] = shortened(v[name], longest)
		}
	}
	return value
}

// stream is what a model reads of one of the exec's outputs, in at most most bytes. begin is its beginning; kept says that more is kept.
func (s *Server) stream(ctx context.Context, rec audit.Record, name string, begin []byte, more bool, most int) string {
	text := string(begin)
	if more {
		text += s.endOf(ctx, rec, name, most)
	}
	return headAndTail(strings.ToValidUTF8(text, "\uFFFD"), most)
}

// endOf reads the last bytes of an output; nothing when they cannot be read any more.
func (s *Server) endOf(ctx context.Context, rec audit.Record, name string, most int) string {
	f, size, err := s.cfg.Runner.OpenOutput(ctx, rec, name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(max(0, size-int64(most)), io.SeekStart); err != nil {
		return ""
	}
	end, err := io.ReadAll(io.LimitReader(f, int64(most)))
	if err != nil {
		return ""
	}
	return string(end)
}
