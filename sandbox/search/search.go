// Package search finds files by their names and content. It is a program within other programs:
// core-api, secbox and sandbox-init serve as it when their first argument is Verb, so that a search
// runs where the files are, with the same rules in every sandbox and on every system. Backends
// start it for a command named Command.
//
// A search never follows links, opens only regular files, and stays below its working directory
// even if directories are exchanged meanwhile. Its time, memory and output are bounded. The package
// imports nothing of this module, because sandbox-init is in every container.
package search

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Command is the command of a sandbox.ExecSpec that searches. Its only argument is a Request as
// JSON; its output has a Message as JSON in each line.
const Command = "secbox-search"

// Verb is the first argument of a program that is to search. The second argument is the argument of
// Command.
const Verb = "search"

// Request is what to search for.
type Request struct {
	// the file or directory to search, relative to the working directory; "." is that itself
	Path string `json:"path"`
	Glob string `json:"glob,omitempty"` // only files whose names match, see compileGlob; empty: all
	// a regular expression (RE2), matched line by line; empty: files are found by name only
	Pattern    string `json:"pattern,omitempty"`
	IgnoreCase bool   `json:"ignore_case,omitempty"` // in Pattern
	Mode       string `json:"mode,omitempty"`        // what to tell of files that match Pattern
	Before     int    `json:"before,omitempty"`      // lines of context in mode Content
	After      int    `json:"after,omitempty"`
	Limit      int    `json:"limit"`      // files, or lines in mode Content, to answer with; the newest files come first
	TimeoutMS  int64  `json:"timeout_ms"` // after which the search ends with what it has found

	maxEntries int // set by tests; 0: MaxEntries
}

// Modes.
const (
	Files   = "files"   // only the names
	Count   = "count"   // the number of lines that match
	Content = "content" // the lines that match, and their context
)

// Bounds of a search, whatever is asked for.
const (
	MaxEntries   = 1_000_000 // names that are looked at
	MaxLimit     = 2000
	MaxContext   = 50
	MaxOutput    = 256 << 10 // bytes of names and lines
	maxLineBytes = 400       // of one line that are shown
)

// Message is a line of the answer: a File, or the Summary, which is the last one.
type Message struct {
	File    *File    `json:"file,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
}

// File is a file that was found. Files come newest first.
type File struct {
	Path     []byte    `json:"path"` // relative to the working directory, with slashes; any bytes
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified"`
	Count    int       `json:"count,omitempty"` // lines that match
	Lines    []Line    `json:"lines,omitempty"` // in mode Content
}

// Line is one line of a file.
type Line struct {
	Number  int    `json:"number"`
	Text    []byte `json:"text"`              // any bytes, without the end of the line
	Cut     int    `json:"cut,omitempty"`     // bytes of the line before Text
	More    int    `json:"more,omitempty"`    // bytes of the line after Text
	Context bool   `json:"context,omitempty"` // it does not match, and is near a matching line
}

// Summary tells about the whole search.
type Summary struct {
	Files      int `json:"files"`                // that were found, in the answer or not
	Matches    int `json:"matches,omitempty"`    // lines that match
	Entries    int `json:"entries"`              // names that were looked at
	Unreadable int `json:"unreadable,omitempty"` // files and directories that could not be opened
	// files that were not searched for Pattern: they are binary, or UTF-16 without a byte order
	// mark
	Binary  int    `json:"binary,omitempty"`
	Stopped string `json:"stopped,omitempty"` // why the search ended early
	Error   string `json:"error,omitempty"`   // why there was no search
}

// Main searches and does not return, if this process was started to do that. A program that is
// started with Verb must call it first.
func Main() {
	if len(os.Args) == 3 && os.Args[1] == Verb {
		os.Exit(serve(os.Args[2], os.Stdout))
	}
}

// serve answers a Request as JSON; it returns the exit code.
func serve(request string, to io.Writer) int {
	out := bufio.NewWriter(to)
	encoder := json.NewEncoder(out)
	fail := func(err error) int {
		_ = encoder.Encode(Message{Summary: &Summary{Error: err.Error()}})
		_ = out.Flush()
		return 2
	}
	var r Request
	if err := json.Unmarshal([]byte(request), &r); err != nil {
		return fail(err)
	}
	found, summary, err := Run(".", r)
	if err != nil {
		return fail(err)
	}
	left := MaxOutput
	for i := range found {
		if left -= found[i].weight(); left < 0 {
			summary.Stopped = fmt.Sprintf("the answer has %d KiB", MaxOutput>>10)
			break
		}
		if encoder.Encode(Message{File: &found[i]}) != nil {
			return 1
		}
	}
	if encoder.Encode(Message{Summary: &summary}) != nil || out.Flush() != nil {
		return 1
	}
	return 0
}

// weight is roughly the bytes that a file takes in an answer.
func (f *File) weight() int {
	n := len(f.Path) + 60
	for _, l := range f.Lines {
		n += len(l.Text) + 10
	}
	return n
}
