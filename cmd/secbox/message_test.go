package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestLongLine(t *testing.T) {
	t.Parallel()
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", 1000)+"\nshort\n"+strings.Repeat("y", 1000)), 16)
	for n, want := range []struct {
		line string
		err  error
	}{{"", errTooLong}, {"short\n", nil}, {"", io.EOF}} {
		if line, err := readLine(r, 100); string(line) != want.line || !errors.Is(err, want.err) {
			t.Errorf("%d: %q, %v; want %q, %v", n, line, err, want.line, want.err)
		}
	}
}

// FuzzEvents: the reader returns the data of the events of a stream, and never fails on arbitrary
// bytes.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "data: {}\n\n", "event: message\ndata: {\"a\":1}\n\n", ": ok\n\n", "data: a\ndata: b\n\n", "data: x", "data:x\r\n\r\n", "id: 1\n\n\n\ndata: \n\n",
		"retry: x\n", "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var all [][]byte
		keep := func(id string, data []byte) {
			if len(data) > 0 {
				all = append(all, bytes.Clone(data))
			} else if id == "" {
				t.Fatalf("%q: an event with nothing", stream)
			}
		}
		if err := events(bytes.NewReader(stream), keep); err != nil {
			t.Fatalf("%q: %v", stream, err)
		}
		var again bytes.Buffer
		for _, data := range all {
			again.WriteString("event: message\n")
			for line := range bytes.SplitSeq(data, []byte("\n")) {
				again.WriteString("data: ")
				again.Write(line)
				again.WriteByte('\n')
			}
			again.WriteByte('\n')
		}
		before := all
		all = nil
		if err := events(&again, keep); err != nil || len(all) != len(before) {
			t.Fatalf("%q became %q, %v", before, all, err)
		}
	})
}

// FuzzMessage: every line that a host writes is answered with at most one line of JSON.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `[]`, `null`, `5`, `{"id":{}}`, `{"id":"\ud800","method":1}`,
		`{"method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":5}}}`, `{"id":1,"id":2}`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMessage(line)
		if err != nil {
			return
		}
		_, _, _ = m.protocolVersion(), m.canceled(), idKey(m.ID)
		if m.isCall() && m.isAnswer() {
			t.Errorf("%q is both", line)
		}
		var out bytes.Buffer
		o := &output{w: &out}
		if err := o.write(errorFor(m.ID, codeBroken, "", "text")); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !json.Valid([]byte(got)) {
			t.Errorf("%q is answered with %q", line, got)
		}
	})
}
