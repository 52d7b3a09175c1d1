package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/search"
)

const (
	searchTimeout = 30 * time.Second // after which a search ends with what it has found
	searchGrace   = 30 * time.Second // for the command around it to start and end
	searchOutput  = 1 << 20          // bytes of its answer
	defaultLimit  = 100
)

const globDescription = `Finds files by their names, the newest first. * and ? match within a name, ** any number of directories, {a,b} either. A pattern without a slash ` +
	`("*.go") finds names in all directories, others ("src/**/*.go") match the path below the directory that is searched. Directories .git and links are left out.`

// GlobParams are the arguments of Glob.
type GlobParams struct {
	Pattern string `json:"pattern" jsonschema:"the pattern for names or paths, such as *.go or src/**/*_test.go"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to search; the current one if left out"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many files to answer with; 100 if left out, at most 2000"`
}

// Glob finds files by their names.
func (s *Session) Glob(ctx context.Context, p GlobParams) (*Result, error) {
	if p.Pattern == "" {
		return nil, badArgument("pattern", "is empty; give a pattern such as *.go")
	}
	if p.Limit < 0 || p.Limit > search.MaxLimit {
		return nil, badArgument("limit", "must be from 1 to %d", search.MaxLimit)
	}
	return s.find(ctx, p.Path, search.Request{Glob: p.Pattern, Mode: search.Files, Limit: p.Limit})
}

const grepDescription = `Searches the content of files for a regular expression (RE2, as in Go and ripgrep), line by line, and answers with the newest files first. output_mode says with what: ` +
	`"files_with_matches" (names, the default), "content" (lines with their numbers), "count" (lines that match, for each file). Binary files, directories .git and links are left out; files in UTF-16 with a byte order mark are not binary.`

// GrepParams are the arguments of Grep, named as ripgrep's options.
type GrepParams struct {
	Pattern    string `json:"pattern" jsonschema:"the regular expression; write a backslash before characters such as ( [ . * that are meant literally"`
	Path       string `json:"path,omitempty" jsonschema:"the file or directory to search; the current directory if left out"`
	Glob       string `json:"glob,omitempty" jsonschema:"search only files whose names match, such as *.go or src/**/*.{ts,tsx}"`
	OutputMode string `json:"output_mode,omitempty" jsonschema:"files_with_matches, content or count"`
	IgnoreCase bool   `json:"-i,omitempty" jsonschema:"do not distinguish upper and lower case"`
	After      int    `json:"-A,omitempty" jsonschema:"lines to show after each match, in output_mode content"`
	Before     int    `json:"-B,omitempty" jsonschema:"lines to show before each match, in output_mode content"`
	Context    int    `json:"-C,omitempty" jsonschema:"lines to show before and after each match, in output_mode content"`
	Limit      int    `json:"head_limit,omitempty" jsonschema:"how many files, or lines in output_mode content, to answer with; 100 if left out, at most 2000"`
}

// grepModes are the values of OutputMode.
var grepModes = map[string]string{"": search.Files, "files_with_matches": search.Files, "content": search.Content, "count": search.Count}

// Grep finds files by their content.
func (s *Session) Grep(ctx context.Context, p GrepParams) (*Result, error) {
	mode, ok := grepModes[p.OutputMode]
	switch {
	case p.Pattern == "":
		return nil, badArgument("pattern", "is empty; give a regular expression")
	case !ok:
		return nil, badArgument("output_mode", "must be files_with_matches, content or count")
	case p.Limit < 0 || p.Limit > search.MaxLimit:
		return nil, badArgument("head_limit", "must be from 1 to %d", search.MaxLimit)
	}
	for name, lines := range map[string]int{"-A": p.After, "-B": p.Before, "-C": p.Context} {
		if lines < 0 || lines > search.MaxContext {
			return nil, badArgument(name, "must be from 0 to %d", search.MaxContext)
		}
	}
	return s.find(ctx, p.Path, search.Request{
		Pattern: p.Pattern, Glob: p.Glob, Mode: mode, IgnoreCase: p.IgnoreCase, Limit: p.Limit,
		Before: max(p.Before, p.Context), After: max(p.After, p.Context),
	})
}

// find runs a search in the user's sandbox, as a command that is on record.
func (s *Session) find(ctx context.Context, name string, r search.Request) (*Result, error) {
	full := s.resolve(name)
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	dir := sandbox.Root
	if r.Path, err = sandbox.Clean("search", full, dir); err != nil { // below a read-only root
		dir, r.Path = full, "."
		if !info.IsDir {
			dir, r.Path = splitPath(full)
		}
	}
	if r.Limit == 0 {
		r.Limit = defaultLimit
	}
	r.TimeoutMS = searchTimeout.Milliseconds()
	request, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(request) > maxCommand { // no system takes it as an argument
		return nil, badArgument("pattern", "or glob has %d bytes, more than a search takes; write a shorter one",
			max(len(r.Pattern), len(r.Glob)))
	}
	res, err := s.sandbox.Exec(ctx, sandbox.ExecSpec{
		Command: search.Command, Args: []string{string(request)}, Dir: dir, User: s.user, Timeout: searchTimeout + searchGrace,
		MaxStdout: searchOutput, MaxStderr: 4 << 10,
	})
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	found, summary, err := readAnswer(res)
	if err != nil {
		return nil, err
	}
	if summary.Error != "" {
		return nil, fault.New(fault.InvalidInputs, "nothing was searched: %s", visible(cut(summary.Error, 500)))
	}
	return &Result{
		Text: s.listFound(dir, r, found, summary),
		Meta: map[string]any{"exec_id": res.ExecID, "files": summary.Files, "matches": summary.Matches},
	}, nil
}

func splitPath(full string) (dir, name string) {
	at := strings.LastIndexByte(full, '/')
	return full[:at], full[at+1:]
}

// readAnswer reads the output of a search, which may come from a user's machine: anything may be in
// it.
func readAnswer(res *sandbox.ExecResult) (found []search.File, summary search.Summary, err error) {
	complete := false
	decoder := json.NewDecoder(strings.NewReader(res.Stdout))
	for !complete {
		var m search.Message
		if decoder.Decode(&m) != nil {
			break
		}
		switch {
		case m.File != nil && len(found) < search.MaxLimit:
			found = append(found, *m.File)
		case m.Summary != nil:
			summary, complete = *m.Summary, true
		}
	}
	switch {
	case complete:
		return found, summary, nil
	case res.TimedOut:
		return nil, summary, fault.New(fault.SandboxBusy, "the search did not end in time; search a smaller directory, or try again")
	case res.StdoutBytes > int64(len(res.Stdout)):
		return nil, summary, fault.New(fault.TreeTooLarge, "the answer of the search is too large; ask for less with limit or head_limit")
	}
	e := fault.New(fault.Unsupported, "the user's sandbox cannot search (exit code %d): it needs a secbox of this version on the user's "+
		"machine, or the sandbox image of this version (make images)", res.ExitCode)
	e.ExecID = res.ExecID
	return nil, summary, e
}

// listFound writes what was found for the model.
func (s *Session) listFound(dir string, r search.Request, found []search.File, summary search.Summary) string {
	var b strings.Builder
	lines := 0
	for n, f := range found {
		if b.Len() > maxTextBytes {
			summary.Stopped, found = "the answer is too large", found[:n]
			break
		}
		name := quote(s.short(dir + "/" + string(f.Path)))
		switch r.Mode {
		case search.Count:
			fmt.Fprintf(&b, "%s: %d\n", name, f.Count)
		case search.Content:
			if n > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(name + "\n")
			lines += writeLines(&b, f.Lines)
		default:
			b.WriteString(name + "\n")
		}
	}
	if len(found) == 0 {
		b.WriteString("nothing found\n")
	}
	b.WriteString(note(r, len(found), lines, summary))
	return b.String()
}

// writeLines writes the lines of a file as grep does: 12:match, 13-context; it returns how many
// match.
func writeLines(b *strings.Builder, lines []search.Line) (matches int) {
	for i, l := range lines {
		if i > 0 && l.Number != lines[i-1].Number+1 && lines[i-1].Number > 0 {
			b.WriteString("--\n")
		}
		mark := ":"
		if l.Context {
			mark = "-"
		} else {
			matches++
		}
		text := bytes.TrimSuffix(l.Text[:min(len(l.Text), maxLineBytes)], []byte("\n"))
		fmt.Fprintf(b, "%d%s", l.Number, mark)
		if l.Cut > 0 {
			fmt.Fprintf(b, "(%d bytes) … ", l.Cut)
		}
		b.WriteString(visible(string(text)))
		if l.More > 0 {
			fmt.Fprintf(b, " … (%d bytes)", l.More)
		}
		b.WriteByte('\n')
	}
	return matches
}

// note says what the list leaves out.
func note(r search.Request, files, lines int, summary search.Summary) string {
	var notes []string
	if summary.Files > files || r.Mode == search.Content && summary.Matches > lines {
		text := fmt.Sprintf("the newest %d of %d files", files, summary.Files)
		if r.Mode == search.Content {
			text = fmt.Sprintf("%d of %d lines that match, in %d files", lines, summary.Matches, summary.Files)
		}
		notes = append(notes, text+"; narrow the search, or raise the limit")
	}
	if summary.Stopped != "" {
		notes = append(notes, "the search ended early: "+visible(cut(summary.Stopped, 200)))
	}
	if summary.Unreadable > 0 {
		notes = append(notes, fmt.Sprintf("%d files or directories could not be read", summary.Unreadable))
	}
	if summary.Binary > 0 {
		notes = append(notes, fmt.Sprintf("binary files that were not searched: %d", summary.Binary))
	}
	if notes == nil {
		return ""
	}
	return "(" + strings.Join(notes, "; ") + ")\n"
}

func cut(text string, most int) string { return text[:min(len(text), most)] }
