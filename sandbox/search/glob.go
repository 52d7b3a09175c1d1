package search

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxGlob is the longest pattern for names, in bytes.
const maxGlob = 1000

// compileGlob compiles a pattern for paths. * and ? match within a name, ** any number of
// directories, [a-z] and [!a-z] a character, {a,b} either. A pattern without a slash matches the
// last name of a path, in any directory; others match the whole path below the directory that is
// searched.
func compileGlob(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxGlob {
		return nil, fmt.Errorf("the glob has more than %d bytes", maxGlob)
	}
	pattern = strings.TrimPrefix(pattern, "./")
	var b strings.Builder
	b.WriteString(`(?s)^`)
	if !strings.Contains(pattern, "/") {
		b.WriteString(`(?:.*/)?`)
	}
	pattern = strings.TrimPrefix(pattern, "/")
	alternatives := 0
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString(`(?:.*/)?`)
			i += 2
		case strings.HasPrefix(rest, "**"):
			b.WriteString(`.*`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '[':
			end := strings.IndexByte(rest[min(len(rest), 2):], ']') // the first character may be a ]
			if end < 0 {
				return nil, errors.New("the glob has a [ without a ]")
			}
			class := rest[1 : end+2]
			b.WriteByte('[')
			if class[0] == '!' || class[0] == '^' {
				b.WriteString(`^/`)
				class = class[1:]
			}
			b.WriteString(strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`).Replace(class))
			b.WriteByte(']')
			i += end + 2
		case c == '{':
			b.WriteString(`(?:`)
			alternatives++
		case c == '}' && alternatives > 0:
			b.WriteByte(')')
			alternatives--
		case c == ',' && alternatives > 0:
			b.WriteByte('|')
		case c == '\\' && len(rest) > 1:
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		case c < 0x80:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteByte(c)
		}
	}
	if alternatives > 0 {
		return nil, errors.New("the glob has a { without a }")
	}
	b.WriteByte('$')
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, errors.New("the glob is not valid: write * ** ? [a-z] {a,b}, and \\ before a character that is meant literally")
	}
	return re, nil
}
