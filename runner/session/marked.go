package session

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// marked is a stream of an interpreter. What comes before the mark of a cell is the cell's output.
type marked struct {
	mu     sync.Mutex
	to     io.Writer // of the cell that runs; nil between cells
	prefix []byte    // of its mark
	held   []byte    // what may be the beginning of the mark, or came between cells
	ended  func(code int)
}

// mostBetween is how many bytes an interpreter may write between cells, for the next one; further
// ones are lost.
const mostBetween = 64 << 10

// longestCode is how many bytes the code in a mark and its NUL have at most.
const longestCode = 4

// begin gives the output to a cell until its mark comes. ended is called then, with the code.
func (m *marked) begin(nonce string, to io.Writer, ended func(code int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to, m.prefix, m.ended = to, []byte("\x00"+nonce+" "), ended
	early := m.held
	m.held = nil
	_, _ = to.Write(early)
}

// end takes the output from the cell.
func (m *marked) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to != nil && len(m.held) > 0 {
		_, _ = m.to.Write(m.held)
		m.held = nil
	}
	m.to = nil
}

// Write never fails.
func (m *marked) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to == nil {
		m.held = append(m.held, p[:min(len(p), mostBetween-min(mostBetween, len(m.held)))]...)
		return len(p), nil
	}
	all := append(m.held, p...)
	m.held = nil
	at := bytes.Index(all, m.prefix)
	if at < 0 {
		keep := partOf(all, m.prefix)
		_, _ = m.to.Write(all[:len(all)-keep])
		m.held = bytes.Clone(all[len(all)-keep:])
		return len(p), nil
	}
	rest := all[at+len(m.prefix):]
	end := bytes.IndexByte(rest, 0)
	if end < 0 && len(rest) < longestCode {
		_, _ = m.to.Write(all[:at])
		m.held = bytes.Clone(all[at:])
		return len(p), nil
	}
	_, _ = m.to.Write(all[:at])
	code, err := strconv.Atoi(string(rest[:max(0, end)]))
	if err != nil || code < 0 || code > 255 {
		code = 255
	}
	m.to = nil
	m.held = bytes.Clone(rest[end+1:][:min(len(rest)-end-1, mostBetween)])
	m.ended(code)
	return len(p), nil
}

// partOf is how many bytes at the end of all are a beginning of mark.
func partOf(all, mark []byte) int {
	for n := min(len(all), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(all, mark[:n]) {
			return n
		}
	}
	return 0
}
