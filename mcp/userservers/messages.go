package userservers

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

const (
	maxNoise = 64 << 10 // bytes between two messages that are not messages
	maxDoubt = 4 << 10  // bytes of a line that begins like a message, without the member that each message has
)

// messagesOnly reads the messages of standard output, and drops what many servers write beside
// them: a greeting, a byte order mark, their log. A message is a line that begins with an object or
// a list, and has the member "jsonrpc" in its first maxDoubt bytes or is longer.
type messagesOnly struct {
	from  io.Reader
	noise io.Writer // gets what is dropped

	state   int
	begun   []byte // of a line in doubt
	dropped int    // bytes since the last message
	ready   []byte
	err     error // follows ready
	buffer  [8 << 10]byte
}

// States of messagesOnly.
const (
	lineBegins = iota
	inDoubt
	inMessage
	inNoise
)

// blank are the bytes that may precede a message on its line. The last three are a byte order mark.
const blank = " \t\r\n\xef\xbb\xbf"

// Read implements io.Reader.
func (m *messagesOnly) Read(p []byte) (int, error) {
	for len(m.ready) == 0 && m.err == nil {
		n, err := m.from.Read(m.buffer[:])
		m.err = err
		m.sort(m.buffer[:n])
		if m.dropped > maxNoise {
			m.err = fmt.Errorf("more than %d bytes between two messages are none", maxNoise)
		}
	}
	n := copy(p, m.ready)
	if m.ready = m.ready[n:]; n > 0 {
		return n, nil
	}
	return 0, m.err
}

// Close implements io.Closer.
func (m *messagesOnly) Close() error {
	if c, ok := m.from.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (m *messagesOnly) sort(text []byte) {
	for len(text) > 0 {
		line, ends := text, false
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, ends = text[:i+1], true
		}
		text = text[len(line):]
		if m.state == lineBegins {
			for len(line) > 0 && strings.IndexByte(blank, line[0]) >= 0 {
				line = line[1:]
				m.dropped++
			}
			if len(line) == 0 {
				continue
			}
			if m.state = inNoise; line[0] == '{' || line[0] == '[' {
				m.state = inDoubt
			}
		}
		switch m.state {
		case inMessage:
			m.ready = append(m.ready, line...)
		case inNoise:
			m.drop(line)
		case inDoubt:
			m.begun = append(m.begun, line...)
			switch {
			case bytes.Contains(m.begun, []byte(`"jsonrpc"`)), len(m.begun) > maxDoubt:
				m.ready = append(m.ready, m.begun...)
				m.state, m.begun, m.dropped = inMessage, nil, 0
			case ends:
				m.drop(m.begun)
				m.begun = nil
			}
		}
		if ends {
			m.state = lineBegins
		}
	}
}

func (m *messagesOnly) drop(text []byte) {
	m.dropped += len(text)
	_, _ = m.noise.Write(text)
}
