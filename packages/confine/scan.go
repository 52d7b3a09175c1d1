package confine

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// kind is the meaning of an argument for its command.
type kind int

const (
	plain   kind = iota // a file, an option, a value
	value               // of a program that may open it as a whole, as python3 x.py may; else it is text
	script              // a shell script
	program             // of awk, sed or python3 -c, or a pattern of grep
)

// scan reads an argument as a sequence of tokens, separated by the characters after which a path
// can begin.
type scan struct {
	root     string
	also     []string // further directories; only absolute paths lead there
	kind     kind
	unquoted bool // quotes were removed from the text
	parsed   bool // the commands of the script are checked beside its text
	within   bool // a command of a script; it may use the standard streams
}

func (s scan) as(k kind) scan {
	s.kind, s.unquoted, s.parsed = k, false, false
	return s
}

// delimiters are the characters, beside white space and controls, after which a path can begin:
// --f=/x, -I a:b, {a,b}, 'x', "x", `x`, @file, >file, (x), $(x), !x, ^x, #x.
const delimiters = "=:,;|&<>([{!'\"`@#^$"

func delimits(c byte) bool { return c <= ' ' || c == 0x7f || strings.IndexByte(delimiters, c) >= 0 }

// read returns a reason if a path in the text leads out of the root.
func (s scan) read(text string) string {
	for at := 0; at < len(text); {
		if delimits(text[at]) {
			at++
			continue
		}
		end := at
		for end < len(text) && !delimits(text[end]) {
			end++
		}
		next, why := s.token(text, at, end)
		if why != "" {
			return why
		}
		at = next
	}
	return ""
}

// token checks text[at:end] and returns where to continue.
func (s scan) token(text string, at, end int) (next int, why string) {
	token := text[at:end]
	if goesUp(token) {
		return 0, s.dots(text)
	}
	if s.kind == script {
		if home := strings.IndexByte(token, '/'); token[0] == '~' && home > 0 {
			why := fmt.Sprintf("%s is below a home directory; write paths relative to the working directory, which is %s", shown(token),
				s.root)
			return 0, why + s.noPath()
		}
		if why := s.glob(text, at, token); why != "" {
			return 0, why
		}
	}

	begin := at
	if token[0] == '-' { // the value of an option may follow its letters
		for begin < end && text[begin] == '-' {
			begin++
		}
		for begin < end && alphanumeric(text[begin]) {
			begin++
		}
		if rest := text[begin:end]; rest == ".." || strings.HasPrefix(rest, "../") || strings.HasPrefix(rest, `..\`) {
			return 0, s.dots(text)
		}
	}
	if begin == end || text[begin] != '/' || webAddress(text, begin) || s.kind == script && !s.unquoted && afterClosingQuote(text, begin) {
		return end, ""
	}
	if s.harmless(text, begin) {
		return end, ""
	}
	if !s.inside(text, begin) {
		return 0, s.absolute(text[begin:end])
	}
	for _, root := range s.roots() {
		below := begin + len(root)
		if below <= end || !strings.HasPrefix(text[begin:], root) {
			continue
		}
		for end = below; end < len(text) && !delimits(text[end]); { // the root's name may contain delimiters
			end++
		}
		if goesUp(text[below:end]) {
			return 0, s.dots(text)
		}
	}
	return end, ""
}

func (s scan) roots() []string { return append([]string{s.root}, s.also...) }

// goesUp reports whether a path has a component "..", with slashes or backslashes.
func goesUp(token string) bool {
	return slices.Contains(strings.FieldsFunc(token, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}

// harmless reports whether the slash at this place begins no path that is opened, or one that any
// script may open.
func (s scan) harmless(text string, begin int) bool {
	w := word(text[begin:])
	if (s.kind != plain || s.within) && slices.Contains(streams, w) {
		return true
	}
	switch {
	case s.kind == plain, s.kind == script && !s.parsed, s.kind == value && whole(text, begin):
		return false
	}
	return !topLevel(w) || interpreter(text[:begin], w)
}

// whole reports whether a program that gets this argument may take all of it, or all of an option's
// value, for the path at this place. In "// note", the slashes are text.
func whole(text string, begin int) bool {
	option := strings.TrimLeft(strings.TrimSuffix(strings.TrimSuffix(text[:begin], "@"), "="), "-")
	if strings.ContainsFunc(option, func(r rune) bool { return r != '-' && r != '_' && (r > unicode.MaxASCII || !alphanumeric(byte(r))) }) {
		return false
	}
	rest := strings.TrimLeft(text[begin:], "/")
	return rest == "" || rest[0] > ' '
}

// interpreter reports whether a path is the one in the first line of a script, after #!. No path
// that a command opens follows #! without a space; at the beginning of a line, # begins a shell's
// comment.
func interpreter(before, p string) bool {
	found := strings.HasSuffix(before, "#!")
	if line, spaced := strings.CutSuffix(strings.TrimRight(before, " "), "#!"); spaced && (line == "" || strings.HasSuffix(line, "\n")) {
		found = true
	}
	folders := []string{"/bin/", "/usr/bin/", "/usr/local/bin/"}
	return found && slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(p, folder) })
}

// streams are the files outside of the root that scripts and programs may name.
var streams = []string{"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"}

// inside reports whether the absolute path at this place is a root or below one. The path of a
// plain argument, or one that is the whole of a value, continues to its end: /skills/ab c is not
// below /skills/ab. Elsewhere it ends with the word.
func (s scan) inside(text string, begin int) bool {
	ends := s.kind != plain && (s.kind != value || !whole(text, begin))
	text = text[begin:]
	within := func(p string) bool {
		p = path.Clean(p)
		return slices.ContainsFunc(s.roots(), func(root string) bool { return p == root || strings.HasPrefix(p, root+"/") })
	}
	return within(text) || ends && within(word(text))
}

// word returns the text up to the end of a shell's word, or of a string in a program.
func word(text string) string {
	if end := strings.IndexAny(text, " \t\r\n\v\f;|&<>()'\"`"); end >= 0 {
		return text[:end]
	}
	return text
}

// webAddress reports whether the slash at this place is the first after http: or https:, whose
// paths are not local.
func webAddress(text string, at int) bool {
	for _, scheme := range []string{"http:", "https:"} {
		begin := at - len(scheme)
		if strings.HasPrefix(text[at:], "//") && begin >= 0 && strings.EqualFold(text[begin:at], scheme) && (begin == 0 ||
			delimits(text[begin-1])) {
			return true
		}
	}
	return false
}

// afterClosingQuote reports whether the slash continues a shell's word, as in "$dir"/file: the
// quote before it closes a string that is not empty.
func afterClosingQuote(text string, at int) bool {
	if at < 2 || text[at-1] != '"' && text[at-1] != '\'' || strings.Count(text[:at], text[at-1:at])%2 != 0 {
		return false
	}
	last := text[at-2]
	return alphanumeric(last) || last == '_' || last == '}' || last == ')' || last >= 0x80
}

// glob refuses patterns that a shell may expand to "..", such as .* and .?, unless they seem to be
// quoted.
func (s scan) glob(text string, at int, token string) string {
	if s.unquoted {
		return ""
	}
	for name := range strings.SplitSeq(token, "/") {
		if !strings.HasPrefix(name, ".") || !strings.ContainsAny(name, "*?[") {
			continue
		}
		if before := text[:at]; strings.Count(before, "'")%2 == 1 || strings.Count(before, `"`)%2 == 1 {
			return ""
		}
		if matches, err := path.Match(name, ".."); matches && err == nil {
			return fmt.Sprintf("%s may mean the folder above the working directory; put it into quotes if it is no file name, else name "+
				"the files",
				shown(token))
		}
	}
	return ""
}

// sedFiles checks the names of files that follow a letter without a space: 1r/etc/passwd,
// s/a/b/gw../x. The letter may follow numbers and the letters of other flags, and of the option
// that the program is attached to.
func (s scan) sedFiles(text string) string {
	s.kind = program
	for at := 1; at < len(text); at++ {
		rest := text[at:]
		up := strings.HasPrefix(rest, "../") || rest == ".."
		if strings.IndexByte("rRwWe", text[at-1]) < 0 || rest[0] != '/' && !up {
			continue
		}
		begin := at - 1
		for begin > 0 && strings.IndexByte("0123456789gpiImMe", text[begin-1]) >= 0 {
			begin--
		}
		if begin > 0 && alphanumeric(text[begin-1]) && (text[0] != '-' ||
			strings.ContainsFunc(text[1:begin], func(r rune) bool { return !unicode.IsLetter(r) })) {
			continue // the end of a longer word
		}
		if up {
			return s.dots(text)
		}
		if w := word(rest); topLevel(w) && !s.inside(rest, 0) && !slices.Contains(streams, w) {
			return s.absolute(w)
		}
	}
	return ""
}

// topLevel reports whether a path in a program begins with a top-level folder of Linux systems,
// also by a shell pattern.
func topLevel(p string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	for _, folder := range []string{
		"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv",
		"sys", "tmp", "usr", "var", "workspace",
	} {
		if matches, err := path.Match(first, folder); first == folder || matches && err == nil {
			return true
		}
	}
	return false
}

func (s scan) absolute(p string) string {
	why := fmt.Sprintf("%s is outside of the working directory; write paths relative to it, or below %s", shown(p),
		strings.Join(s.roots(), " or "))
	return why + s.noPath()
}

func (s scan) dots(text string) string {
	why := fmt.Sprintf("%s has a .. component; write paths relative to the working directory, which is %s, without going up", shown(text),
		s.root)
	return why + s.noPath()
}

// noPath is the remedy when a script or program only seems to name a path.
func (s scan) noPath() string {
	switch s.kind {
	case script:
		return "; if this is text and no path, write the text with a here-document (cat > FILE <<'END'), or put it into a file"
	case program:
		return "; if this is no path but part of a program, put the program into a file"
	case value:
		return "; if this is text and no path, put the text into a file"
	}
	return ""
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// shown quotes and cuts an untrusted text.
func shown(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

func field(i int) string { return "args[" + strconv.Itoa(i) + "]" }
