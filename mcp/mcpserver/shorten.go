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

// headAndTail shortens text to limit bytes: its beginning, a note, and its end.
func headAndTail(text string, limit int) string {
	const noteBytes = 60
	if len(text) <= limit {
		return text
	}
	room := max(0, limit-noteBytes)
	head, tail := room-room/3, room/3
	return strings.ToValidUTF8(text[:head], "") + fmt.Sprintf("\n… %d bytes left out …\n", len(text)-head-tail) +
		strings.ToValidUTF8(text[len(text)-tail:], "")
}

// shortenJSON shortens the long strings of a JSON text until it has at most limit bytes. It returns
// nil if that is not enough.
func shortenJSON(outputs []byte, limit int) json.RawMessage {
	if len(outputs) <= limit {
		return outputs
	}
	for longest := limit / 2; longest >= 128; longest /= 2 {
		d := json.NewDecoder(bytes.NewReader(outputs))
		d.UseNumber()
		var value any
		if d.Decode(&value) != nil {
			return nil
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if e.Encode(shortenStrings(value, longest)) != nil {
			return nil
		}
		if short := bytes.TrimSpace(b.Bytes()); len(short) <= limit {
			return short
		}
	}
	return nil
}

func shortenStrings(value any, longest int) any {
	switch v := value.(type) {
	case string:
		return headAndTail(v, longest)
	case []any:
		for n := range v {
			v[n] = shortenStrings(v[n], longest)
		}
	case map[string]any:
		for name := range v {
			v[name] = shortenStrings(v[name], longest)
		}
	}
	return value
}

// stream shortens an output of an exec to limit bytes. begin is its beginning; more says that more
// of it was kept.
func (s *Server) stream(ctx context.Context, rec audit.Record, name string, begin []byte, more bool, limit int) string {
	text := string(begin)
	if more {
		text += s.endOf(ctx, rec, name, limit)
	}
	return headAndTail(strings.ToValidUTF8(text, "\uFFFD"), limit)
}

// endOf returns the last bytes of an output, or "" if they cannot be read.
func (s *Server) endOf(ctx context.Context, rec audit.Record, name string, limit int) string {
	f, size, err := s.cfg.Runner.OpenOutput(ctx, rec, name)
	if err != nil {
		return ""
	}
	defer f.Close()
	return string(readTail(f, size, int64(limit)))
}

// readTail returns the last n of size bytes, or nil if they cannot be read.
func readTail(f io.ReadSeeker, size, n int64) []byte {
	if _, err := f.Seek(max(0, size-n), io.SeekStart); err != nil {
		return nil
	}
	tail, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil
	}
	return tail
}
