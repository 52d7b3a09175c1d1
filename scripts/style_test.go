package scripts

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxPronouns is how many comments may say "that of" and the like, where no noun reads better.
const maxPronouns = 20

// unwrappable matches comments that have no words to wrap: preformatted ones, directives, a long
// path.
var unwrappable = regexp.MustCompile(`^\s*//(\t|go:|\s*\S+(\s+\S+)?$)`)

// TestLinesOfGoFiles checks the widths of CONTRIBUTING.md: comments that stand alone have at most
// 100 columns, code 140, tests 160; a tab is four columns. Lines with a long string, and drawings
// and tables in comments, may be wider. It also counts comments in which a pronoun stands for a
// noun.
func TestLinesOfGoFiles(t *testing.T) {
	t.Parallel()
	names, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "-co", "--exclude-standard", "../*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00")
	if len(files) < 1000 {
		t.Fatalf("only %d files", len(files))
	}
	pronoun := regexp.MustCompile(`\b(that of|those of|of which)\b`)
	pronouns := 0
	for _, name := range files {
		content, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // removed, and git has not been told
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content[:min(len(content), 400)], []byte("// Code generated")) {
			continue
		}
		limit := 140
		if strings.HasSuffix(name, "_test.go") {
			limit = 160
		}
		strung := ofStrings(content, limit)
		for i, line := range strings.Split(string(content), "\n") {
			comment := strings.HasPrefix(strings.TrimSpace(line), "//")
			if comment && pronoun.MatchString(line) {
				pronouns++
				t.Logf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
			}
			width := columns(line)
			switch {
			case comment && width > 100 && !unwrappable.MatchString(line):
				t.Errorf("%s:%d: a comment of %d columns", name, i+1, width)
			case !comment && width > limit && !strung[i]:
				t.Errorf("%s:%d: code of %d columns", name, i+1, width)
			}
		}
	}
	if pronouns > maxPronouns {
		t.Errorf("%d comments say \"that of\", \"those of\" or \"of which\": write the noun", pronouns)
	}
}

// ofStrings returns the lines of a file, from 0, with a string that is long or reaches past the
// limit.
func ofStrings(content []byte, limit int) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, 0)
	lines := map[int]bool{}
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind != token.STRING {
			continue
		}
		first, more := file.Line(pos)-1, strings.Count(text, "\n")
		end := file.Offset(pos) + len(text)
		if more == 0 && len(text) < 60 && columns(string(content[file.Offset(file.LineStart(first+1)):end])) <= limit {
			continue
		}
		for n := range more + 1 {
			lines[first+n] = true
		}
	}
}

func columns(line string) int { return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) }
