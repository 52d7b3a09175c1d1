package userservers

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestServersThatPrintBesideMessages: a greeting, a byte order mark and a log on standard output do
// no harm, before and between messages.
func TestServersThatPrintBesideMessages(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("greets"))
	f.list()
	for range 3 {
		if got := f.text("srv.t", "{}"); got != "hello" {
			t.Errorf("%q", got)
		}
	}
	if f.starts() != 1 {
		t.Errorf("%d starts", f.starts())
	}
}

func TestMessagesOnly(t *testing.T) {
	t.Parallel()
	const message = `{"jsonrpc":"2.0","id":1,"result":{}}`
	long := `{"result":"` + strings.Repeat("x", maxDoubt) + `","jsonrpc":"2.0"}`
	for _, c := range []struct{ written, messages, dropped string }{
		{message + "\n", message + "\n", ""},
		{message, message, ""}, // without an end of its line, it is not waited for
		{"hello\n" + message + "\r\nbye\n" + message + "\n", message + "\r\n" + message + "\n", "hello\nbye\n"},
		{"\xef\xbb\xbf" + message + "\n", message + "\n", ""},
		{"\xef\xbb\xbfhello\n\n \t" + message + "\n", message + "\n", "hello\n"},
		{"[INFO] a\n{\"level\": 1}\n[{}]\n[" + message + "]\n", "[" + message + "]\n", "[INFO] a\n{\"level\": 1}\n[{}]\n"},
		{"« à »\n" + message + "\n", message + "\n", "« à »\n"},
		{long + "\n" + message + "\n", long + "\n" + message + "\n", ""},
		{
			strings.Repeat(message+"\n"+strings.Repeat("n", maxNoise/2)+"\n", 5), strings.Repeat(message+"\n", 5),
			strings.Repeat(strings.Repeat("n", maxNoise/2)+"\n", 5),
		},
	} {
		for name, from := range map[string]io.Reader{
			"at once":      strings.NewReader(c.written),
			"byte by byte": iotest.OneByteReader(strings.NewReader(c.written)),
		} {
			var noise bytes.Buffer
			got, err := io.ReadAll(&messagesOnly{from: from, noise: &noise})
			if err != nil || string(got) != c.messages || noise.String() != c.dropped {
				t.Errorf("%s: %.100q: %.100q, %.100q, %v", name, c.written, got, noise.String(), err)
			}
		}
	}
	got, err := io.ReadAll(&messagesOnly{
		from:  io.MultiReader(strings.NewReader(message+"\n"), strings.NewReader(strings.Repeat("\n", 2*maxNoise))),
		noise: io.Discard,
	})
	if err == nil || string(got) != message+"\n" {
		t.Errorf("noise without end: %q, %v", got, err)
	}
}
