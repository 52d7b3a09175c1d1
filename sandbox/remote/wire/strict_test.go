package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

const greeting = `{"type":"hello","protocol":1,"session":"` + session + `","name":"n","version":"1","os":"o","arch":"a","shell":"s","allow":[]`

// strangers are messages that both sides must refuse.
var strangers = map[string]string{
	"nothing":             ``,
	"garbage":             "\x00\xff\x17",
	"no object":           `["hello"]`,
	"half an object":      `{"id":"x","type":"ok"`,
	"two objects":         `{"id":"x","type":"ok"}{"id":"x","type":"ok"}`,
	"no type":             `{"id":"x"}`,
	"an unknown type":     `{"id":"x","type":"reboot"}`,
	"a type of a number":  `{"id":"x","type":3}`,
	"an id of a number":   `{"id":3,"type":"ok"}`,
	"a field twice":       `{"id":"x","id":"y","type":"ok"}`,
	"a type twice":        `{"id":"x","type":"ok","type":"pong"}`,
	"an empty id":         `{"id":"","type":"ok"}`,
	"no id":               `{"type":"ok"}`,
	"a long id":           `{"id":"` + strings.Repeat("i", 65) + `","type":"ok"}`,
	"an id with a slash":  `{"id":"../x","type":"ok"}`,
	"no UTF-8":            "{\"id\":\"x\",\"type\":\"error\",\"code\":\"\xff\",\"message\":\"\"}",
	"a deep nest":         `{"id":"x","type":"error","code":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
	"an unknown field":    `{"id":"x","type":"ok","sudo":true}`,
	"another spelling":    `{"ID":"x","Type":"ok"}`,
	"a message too long":  `{"id":"x","type":"ok"}` + strings.Repeat(" ", wire.MaxMessage),
	"a hello with an id":  `{"id":"x",` + greeting[1:] + `}`,
	"no protocol":         `{"type":"hello"}`,
	"a negative protocol": `{"type":"hello","protocol":-1}`,
}

var lyingRunners = map[string]string{
	"a request":                    `{"id":"x","type":"exec","command":"id"}`,
	"no session":                   `{"type":"hello","protocol":1,"name":"n","version":"1","os":"o","arch":"a","shell":"s","allow":[]}`,
	"a session of other letters":   strings.Replace(greeting, session, strings.Repeat("g", 32), 1) + `}`,
	"a name that is a path":        strings.Replace(greeting, `"name":"n"`, `"name":"../n"`, 1) + `}`,
	"a name that is an option":     strings.Replace(greeting, `"name":"n"`, `"name":"-n"`, 1) + `}`,
	"a long name":                  strings.Replace(greeting, `"name":"n"`, `"name":"`+strings.Repeat("n", 64)+`"`, 1) + `}`,
	"a version for the terminal":   strings.Replace(greeting, `"version":"1"`, `"version":"\u001b[2J"`, 1) + `}`,
	"a long OS":                    strings.Replace(greeting, `"os":"o"`, `"os":"`+strings.Repeat("o", 129)+`"`, 1) + `}`,
	"another thing allowed":        strings.Replace(greeting, `"allow":[]`, `"allow":["sudo"]`, 1) + `}`,
	"a thing allowed twice":        strings.Replace(greeting, `"allow":[]`, `"allow":["exec","exec"]`, 1) + `}`,
	"too much held":                greeting + `,"held":[` + strings.Repeat(`"x",`, wire.MaxHeld) + `"x"]}`,
	"held by no id":                greeting + `,"held":["a b"]}`,
	"another stream":               `{"id":"x","type":"output","stream":"stdin","offset":0,"data":"YQ=="}`,
	"output that is no base64":     `{"id":"x","type":"output","stream":"stdout","offset":0,"data":"%%%"}`,
	"output that is nothing":       `{"id":"x","type":"output","stream":"stdout","offset":0,"data":""}`,
	"long output":                  `{"id":"x","type":"output","stream":"stdout","offset":0,"data":"` + strings.Repeat("YWFh", wire.MaxOutput/3+1) + `"}`,
	"output before the beginning":  `{"id":"x","type":"output","stream":"stdout","offset":-1,"data":"YQ=="}`,
	"output behind the end":        fmt.Sprintf(`{"id":"x","type":"output","stream":"stdout","offset":%d,"data":"YQ=="}`, sandbox.MaxOutputBytes),
	"an offset beyond all numbers": `{"id":"x","type":"output","stream":"stdout","offset":9223372036854775807,"data":"YQ=="}`,
	"a fraction as an offset":      `{"id":"x","type":"output","stream":"stdout","offset":0.5,"data":"YQ=="}`,
	"a result no base64":           resultWith(`"stdout":"%","encoding":"base64"`),
	"a result in rot13":            resultWith(`"stdout":"n","encoding":"rot13"`),
	"a result before the start":    resultWith(`"stdout":"","stdout_at":-1`),
	"more given than written":      resultWith(`"stdout":"abc","stdout_bytes":2`),
	"written less than nothing":    resultWith(`"stdout":"","stdout_bytes":-1`),
	"an exit code of no system":    resultWith(`"stdout":"","exit_code":4294967296`),
	"an exit code below -1":        resultWith(`"stdout":"","exit_code":-2`),
	"a time-out that ended well":   resultWith(`"stdout":"","exit_code":0,"timed_out":true`),
	"content no base64":            `{"id":"x","type":"file_content","data":"%%%","size":2}`,
	"content of another size":      `{"id":"x","type":"file_content","data":"YWFh","size":2}`,
	"content of a negative size":   `{"id":"x","type":"file_content","data":"","size":-1,"sha256":"` + sum + `"}`,
	"content of 600 MiB":           fmt.Sprintf(`{"id":"x","type":"file_content","data":"","size":%d,"sha256":"%s"}`, 600<<20, sum),
	"content twice":                `{"id":"x","type":"file_content","data":"YWFh","size":3,"sha256":"` + sum + `"}`,
	"a hash of something short":    `{"id":"x","type":"file_content","data":"","size":3,"sha256":"aa"}`,
	"a file without a name":        `{"id":"x","type":"file_info","name":"","size":3}`,
	"a file of a negative size":    `{"id":"x","type":"file_info","name":"a","size":-3}`,
	"a file that is a path":        `{"id":"x","type":"file_info","name":"../a","size":3}`,
	"a file from no time":          `{"id":"x","type":"file_info","name":"a","size":3,"mod_time":"yesterday"}`,
	"an entry that is a path":      `{"id":"x","type":"dir_entries","entries":[{"name":"a/b"}]}`,
	"an entry that is ..":          `{"id":"x","type":"dir_entries","entries":[{"name":".."}]}`,
	"an entry with NUL":            `{"id":"x","type":"dir_entries","entries":[{"name":"a\u0000"}]}`,
	"an endless list of nothing":   `{"id":"x","type":"dir_entries","entries":[],"more":true}`,
	"too many entries":             `{"id":"x","type":"dir_entries","entries":[` + strings.Repeat(`{"name":"a"},`, wire.MaxEntries) + `{"name":"a"}]}`,
	"an error without a code":      `{"id":"x","type":"error","message":"oh"}`,
	"a negative input_ack":         `{"id":"x","type":"input_ack","stdin":-1,"signals":0}`,
	"a negative signal's ack":      `{"id":"x","type":"input_ack","stdin":0,"signals":-1}`,
	"stdin of a runner":            `{"id":"x","type":"stdin","offset":0,"data":"YQ=="}`,
	"an ok that says more":         `{"id":"x","type":"ok","data":"YQ=="}`,
}

func resultWith(fields string) string { return `{"id":"x","type":"exec_result",` + fields + `}` }

var lyingServers = map[string]string{
	"a result":                   `{"id":"x","type":"file_info","name":"a"}`,
	"a welcome without a user":   `{"type":"welcome","protocol":1,"version":"1","heartbeat_ms":1000}`,
	"a heart that stands":        `{"type":"welcome","protocol":1,"user_id":"u","version":"1","heartbeat_ms":0}`,
	"a heart that beats yearly":  `{"type":"welcome","protocol":1,"user_id":"u","version":"1","heartbeat_ms":31536000000}`,
	"an offset below nothing":    `{"type":"welcome","protocol":1,"user_id":"u","version":"1","heartbeat_ms":1,"expects":[{"id":"x","stdout":-1}]}`,
	"stdin no base64":            `{"id":"x","type":"exec","command":"c","stdin":"%","encoding":"base64"}`,
	"stdin twice":                `{"id":"x","type":"exec","command":"c","stdin":"a","input":true}`,
	"stdin of nothing":           `{"id":"x","type":"stdin","offset":0,"data":""}`,
	"stdin before the beginning": `{"id":"x","type":"stdin","offset":-1,"data":"YQ=="}`,
	"stdin beyond all numbers":   `{"id":"x","type":"stdin","offset":9223372036854775807,"data":"YQ=="}`,
	"long stdin":                 `{"id":"x","type":"stdin","offset":0,"data":"` + strings.Repeat("YWFh", wire.MaxOutput/3+1) + `"}`,
	"a signal for debuggers":     `{"id":"x","type":"signal","number":1,"signal":"STOP"}`,
	"a signal without a number":  `{"id":"x","type":"signal","signal":"INT"}`,
	"a negative timeout":         `{"id":"x","type":"exec","command":"c","timeout":-1}`,
	"an endless timeout":         `{"id":"x","type":"exec","command":"c","timeout":1e300}`,
	"negative output":            `{"id":"x","type":"exec","command":"c","max_stdout":-1}`,
	"too many arguments":         `{"id":"x","type":"exec","command":"c","args":[` + strings.Repeat(`"",`, 16<<10) + `""]}`,
	"a write of nothing":         `{"id":"x","type":"write_file","path":"/workspace/a"}`,
	"a write of two things":      `{"id":"x","type":"write_file","path":"/workspace/a","data":"","transfer":"` + transfer + `"}`,
	"a write no base64":          `{"id":"x","type":"write_file","path":"/workspace/a","data":"a"}`,
	"a read with data":           `{"id":"x","type":"read_file","path":"/workspace/a","data":""}`,
	"a stat with a transfer":     `{"id":"x","type":"stat","path":"/workspace/a","transfer":"` + transfer + `"}`,
	"a remove with permissions":  `{"id":"x","type":"remove","path":"/workspace/a","perm":1}`,
	"a read if absent":           `{"id":"x","type":"read_file","path":"/workspace/a","if_absent":true}`,
	"absent with a hash":         `{"id":"x","type":"write_file","path":"/workspace/a","data":"","if_absent":true,"if_sha256":"` + sum + `"}`,
	"setuid":                     `{"id":"x","type":"write_file","path":"/workspace/a","data":"","perm":2541}`,
	"negative permissions":       `{"id":"x","type":"write_file","path":"/workspace/a","data":"","perm":-1}`,
	"a transfer with a path":     `{"id":"x","type":"read_file","path":"/workspace/a","transfer":"../../v1/users"}`,
	"a path of a hundred KB":     `{"id":"x","type":"stat","path":"/workspace/` + strings.Repeat("a", 100_000) + `"}`,
	"a cancel that says more":    `{"id":"x","type":"cancel","reason":"so"}`,
	"an ack of nothing":          `{"type":"ack"}`,
	"a read without a known end": `{"id":"x","type":"read_file","path":"/workspace/a"`,
}

func TestInvalidMessages(t *testing.T) {
	t.Parallel()
	check := func(name, message string, decode func([]byte) (wire.Message, error)) {
		m, err := decode([]byte(message))
		switch {
		case !errors.Is(err, wire.ErrProtocol):
			t.Errorf("%s: %v, %+v", name, err, m)
		case len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x1b\x00"):
			t.Errorf("%s: the reason is not one for a close frame and a log: %q", name, err)
		}
	}
	for name, message := range strangers {
		check(name, message, wire.FromRunner)
		check(name, message, wire.FromServer)
	}
	for name, message := range lyingRunners {
		check(name, message, wire.FromRunner)
	}
	for name, message := range lyingServers {
		check(name, message, wire.FromServer)
	}
}

// TestOtherVersion: of a greeting of an unknown version only the version is read, to say which side
// to update.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	m, err := wire.FromRunner([]byte(`{"type":"hello","protocol":2,"colour":"blue","session":7}`))
	if h, ok := m.Body.(*wire.Hello); err != nil || !ok || h.Protocol != 2 {
		t.Fatal(m, err)
	}
	m, err = wire.FromServer([]byte(`{"type":"welcome","protocol":99,"colour":"blue"}`))
	if w, ok := m.Body.(*wire.Welcome); err != nil || !ok || w.Protocol != 99 {
		t.Fatal(m, err)
	}
}

func TestTypeLast(t *testing.T) {
	t.Parallel()
	m, err := wire.FromRunner([]byte(`{"size":3,"data":"YWFh","type":"file_content","id":"x"}`))
	if c, ok := m.Body.(*wire.FileContent); err != nil || !ok || string(c.Data) != "aaa" || m.ID != "x" {
		t.Fatal(m, err)
	}
}

func TestBinaryText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain\n", "\xff\xfe", "a\x00b", strings.Repeat("\x01", 1000), strings.Repeat("\n", 1000), "héllo"} {
		e := &wire.Exec{Command: "c"}
		e.SetStdin(s)
		data, err := wire.Encode("x", wire.TypeExec, e)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 400+2*len(s) {
			t.Errorf("%d bytes became %d", len(s), len(data))
		}
		m, err := wire.FromServer(data)
		if err != nil || m.Body.(*wire.Exec).Stdin != s {
			t.Errorf("%q: %v %v", s, m, err)
		}
	}
}

func TestNonUTF8NameKeepsLink(t *testing.T) {
	t.Parallel()
	data, err := wire.Encode("x", wire.TypeDirEntries, &wire.DirEntries{Entries: []wire.DirEntry{{Name: "a\xffb"}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := wire.FromRunner(data)
	if err != nil || m.Body.(*wire.DirEntries).Entries[0].Name != "a\uFFFDb" {
		t.Fatal(m, err)
	}
}

func TestEncodeTooLong(t *testing.T) {
	t.Parallel()
	_, err := wire.Encode("x", wire.TypeExec, &wire.Exec{Command: strings.Repeat("c", wire.MaxMessage)})
	if !errors.Is(err, wire.ErrTooLong) {
		t.Fatal(err)
	}
}

// TestErrorsRoundTrip: errors are the same on both sides of the link.
func TestErrorsRoundTrip(t *testing.T) {
	t.Parallel()
	const op, path = "read_file", "/workspace/a"
	for _, err := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, fs.ErrInvalid} {
		got := wire.ErrorOf(&fs.PathError{Op: "open", Path: "/home/me/secret", Err: err})
		if strings.Contains(got.Message, "/home/me") {
			t.Errorf("the path of the user's machine is in %q", got.Message)
		}
		back := got.Err(op, path)
		var p *fs.PathError
		if !errors.Is(back, err) || !errors.As(back, &p) || p.Path != path || p.Op != op {
			t.Errorf("%v became %v", err, back)
		}
	}
	for _, code := range []fault.Code{fault.FileTooLarge, fault.TreeTooLarge, fault.DiskFull, fault.RunnerRefused, fault.SandboxBusy} {
		back := wire.ErrorOf(fmt.Errorf("while: %w", fault.New(code, "do this"))).Err(op, path)
		if !fault.Is(back, code) || fault.From(back).Message != "do this" {
			t.Errorf("%s became %v", code, back)
		}
	}
	if got := wire.ErrorOf(context.Canceled); got.Code != wire.CodeCanceled {
		t.Error(got)
	}
	for _, code := range []string{wire.CodeFailed, "EWHATEVER", wire.CodeTransfer, wire.CodeIDReused, wire.CodeCanceled} {
		for _, p := range []string{path, ""} {
			back := wire.Error{Code: code, Message: "a\x1b[2J\nb" + strings.Repeat("\xff", 5000)}.Err(op, p)
			message := fault.From(back).Message
			if fault.Is(back, fault.Internal) {
				t.Errorf("%s: an error of the user's machine counts as one of the server", code)
			}
			if strings.ContainsAny(message, "\x1b\n") || len(message) > wire.MaxErrorMessage+300 || !utf8.ValidString(message) {
				t.Errorf("%s: a stranger's words are shown as they came: %q", code, message)
			}
		}
	}
}

// TestDecodeMemory: decoding takes little more memory than the message has bytes, also for lists of
// empty elements and millions of names. Not parallel, because it measures allocations.
func TestDecodeMemory(t *testing.T) {
	many := func(before string, one func(int) string, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len() < wire.MaxMessage-100; i++ {
			b.WriteString(one(i))
		}
		b.WriteString(after)
		return b.String()
	}
	same := func(s string) func(int) string { return func(int) string { return s } }
	for name, message := range map[string]string{
		"entries": many(`{"id":"x","type":"dir_entries","entries":[`, same(`{},`), `{}]}`),
		"held":    many(`{"type":"hello","protocol":1,"held":[`, same(`"",`), `""]}`),
		"allow":   many(`{"type":"hello","protocol":1,"allow":[`, same(`"",`), `""]}`),
		"names":   many(`{`, func(i int) string { return fmt.Sprintf(`"%x":0,`, i) }, `"type":"ok","id":"x"}`),
	} {
		data := []byte(message)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := wire.FromRunner(data)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > wire.MaxMessage {
			t.Errorf("%s: %d MiB were allocated for a message of %d: %v", name, n>>20, len(data)>>20, err)
		}
	}
}
