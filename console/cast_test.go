package console_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"secbox/audit"
)

// castOf is a recording, an event for each second.
func castOf(t *testing.T, cols, rows int, events ...string) string {
	t.Helper()
	out := fmt.Sprintf(`{"version":2,"width":%d,"height":%d,"timestamp":1}`+"\n", cols, rows)
	for i, e := range events {
		kind, data, _ := strings.Cut(e, " ")
		line, err := json.Marshal([]any{i, kind, data})
		if err != nil {
			t.Fatal(err)
		}
		out += string(line) + "\n"
	}
	return out
}

// played opens the page of an exec with a terminal, and plays its recording to its end.
func played(t *testing.T, cast string) *tab {
	t.Helper()
	f := fullApp()
	f.cast = cast
	for i := range f.records {
		f.records[i].TTYRecord = audit.RecordAll
	}
	b := open(t, f.serve(t))
	b.visit("/console/execs/" + execID(2))
	b.do(chromedp.Click("#terminal [data-cast]"), chromedp.WaitVisible("#terminal .cast"))
	b.seek("1e9")
	return b
}

// seek moves the player, and waits until it is there.
func (b *tab) seek(to string) {
	b.t.Helper()
	eval[bool](b, `new Promise((done) => {
		const seek = document.querySelector("#terminal input[type=range]"), screen = document.querySelector("#terminal .cast");
		seek.value = `+to+`;
		seek.dispatchEvent(new Event("input"));
		const look = () => (screen.getAttribute("aria-busy") === "false" ? done(true) : requestAnimationFrame(look));
		look();
	})`)
}

// wait waits until an expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	eval[bool](b, `new Promise((done) => { const look = () => (`+expression+` ? done(true) : requestAnimationFrame(look)); look(); })`)
}

// shown are the lines of the player's screen, without spaces at their ends.
func (b *tab) shown() []string {
	b.t.Helper()
	lines := eval[[]string](b, `[...document.querySelectorAll("#terminal .cast > div")].map(d => d.textContent.trimEnd())`)
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// TestPlayer: what programs draw is on the screen as in a terminal.
func TestPlayer(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"lines":             {[]string{"o one\r\ntwo\nthree\rT"}, "one|two|T  three"},
		"wrap and scroll":   {[]string{"o " + strings.Repeat("x", 21), "o \r\n2\r\n3\r\n4\r\n5"}, "x|2|3|4|5"},
		"moves":             {[]string{"o \x1b[3;5Hmid\x1b[1;1Htop\x1b[2Cb\x1b[4Aa\x1b[5Gc\bd"}, "top dba||    mid"},
		"erase":             {[]string{"o aaaa\r\nbbbb\r\ncccc\x1b[2;3H\x1b[K\x1b[1;2H\x1b[1K\x1b[3;1H\x1b[2Xd"}, "  aa|bb|d cc"},
		"erase the rest":    {[]string{"o aaaa\r\nbbbb\r\ncccc\x1b[2;3H\x1b[J"}, "aaaa|bb"},
		"lines come and go": {[]string{"o 1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[L\x1b[1;1H\x1b[M", "o \x1b[2;1H\x1b[1P\x1b[@x"}, "|x|3|4"},
		"a region scrolls":  {[]string{"o 1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\n\x1b[2;1H\x1bM\x1bMx\x1b[r"}, "1|x||3|5"},
		"alternate screen":  {[]string{"o sh$ \x1b[?1049h\x1b[Hvim\x1b[?25l", "o \x1b[?1049ldone"}, "sh$ done"},
		"in it":             {[]string{"o sh$ \x1b[?1049h\x1b[Hvim\x1b[?25l"}, "vim"},
		"wide characters":   {[]string{"o 日本\x1b[1;3H語x\r\n👍e\u0301|", "o \x1b[2;2Hy"}, "日語x| ye\u0301|"},
		"drawn lines":       {[]string{"o \x1b(0lqk\x1b(Bq\x0e"}, "┌─┐q"},
		"a new size":        {[]string{"o one\r\ntwo", "r 30x2", "o \r\n" + strings.Repeat("y", 30)}, "two|" + strings.Repeat("y", 30)},
		"tabs":              {[]string{"o a\tb"}, "a       b"},
		"titles and links": {[]string{"o a\x1b]0;title\x07b\x1b]8;;https://evil.example\x1b\\c" +
			"\x1bPq#0\x1b\\d\x1b_x\x1b\\e\x1b[6n\x1b[>c\x1b[?1000hf"}, "abcdef"},
		"typed": {[]string{"o $ ", "i secret", "o ok"}, "$ ok"},
	} {
		t.Run(name, func(t *testing.T) {
			b := played(t, castOf(t, 20, 5, c.events...))
			if got := strings.Join(b.shown(), "|"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestPlayerSeeks: the screen of any moment, colours as classes, and what was typed.
func TestPlayerSeeks(t *testing.T) {
	b := played(t, castOf(t, 40, 5, "o \x1b[31;1mred\x1b[0m \x1b[38;5;46mgreen\x1b[38;2;0;0;255mblue\x1b[m", "i ls\r\x03",
		"o \x1b[7minv", "m signal: interrupt"))
	if got := b.shown(); len(got) != 1 || got[0] != "red greenblueinv" {
		t.Errorf("%q", got)
	}
	classes := eval[[]string](b, `[...document.querySelectorAll("#terminal .cast span")].map(s => s.className + "=" + s.textContent)`)
	if got := strings.Join(classes, "|"); got != "t-bold t-f1=red|t-f10=green|t-f12=blue|t-inverse=inv|t-inverse t-cursor= " && !strings.HasPrefix(got,
		"t-bold t-f1=red|t-f10=green|t-f12=blue|t-inverse=inv| t-cursor= ") {
		t.Errorf("%q", got)
	}
	if text := eval[string](b, `document.querySelector("#terminal .note").textContent`); text != "Typed: ls^M^C · signal: interrupt" {
		t.Errorf("%q", text)
	}
	b.seek("0.5")
	if got := b.shown(); len(got) != 1 || got[0] != "red greenblue" {
		t.Errorf("%q", got)
	}
	if text := eval[string](b, `document.querySelector("#terminal .note").textContent`); strings.HasPrefix(text, "Typed") {
		t.Errorf("%q", text)
	}
	eval[bool](b, `document.querySelector("#terminal .cast").dispatchEvent(new KeyboardEvent("keydown", {key: "End", bubbles: true}))`)
	b.wait(`document.querySelector("#terminal button").textContent === "Play again"`)
}

// TestPlayerIsBounded: a hostile recording neither hangs the page nor makes a large one.
func TestPlayerIsBounded(t *testing.T) {
	huge := strings.Repeat("\x1b[99999999999L\x1b[9999b\x1b[9999@\x1b[9999S\n", 2000)
	b := played(t, castOf(t, 1000000, 1000000, "o "+huge, "r 1e9x1e9", "r -5", "o "+strings.Repeat("\x1b]", 1000)+strings.Repeat("x", 100000),
		"o <img src=x onerror=alert(1)>\x07<script>alert(1)</script>", "o "+strings.Repeat("e\u0301\u0302\u0303\u0304", 10)+strings.Repeat("\u0301", 10000))+
		"not json\n[1e999,\"o\",\"x\"]\n{}\n[-1,\"o\",5]\n[8,\"r\",\"40x5\"]\n[9,\"o\",\"\u202edne\"]\n")
	b.wait(`document.querySelector("#terminal .cast").textContent.includes("dne")`)
	if n := eval[int](b, `document.querySelectorAll("#terminal .cast *").length`); n > 10 {
		t.Errorf("%d elements", n)
	}
	if n := eval[int](b, `document.querySelectorAll("#terminal img, #terminal script").length`); n != 0 {
		t.Error("content became elements")
	}
}
