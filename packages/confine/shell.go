package confine

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds of a script that is parsed. The parser recurses: nested brackets of 32 KiB would take it
// seconds and a stack of 130 MB.
const (
	maxScript = 32 << 10 // bytes
	maxDepth  = 64       // brackets within brackets
)

// shellScript is a parsed script: what its commands are given, and what no command opens.
type shellScript struct {
	text  string     // the script, with spaces for comments and other texts that no command opens
	calls [][]string // the words of each command; expansions are the letter v
	words []string   // values of variables, targets of redirections, and what for loops go through
	fed   []string   // here-documents that a shell may run
}

// parseShell parses a script of bash or sh. It returns false for a script that is too large, or
// that the parser does not take.
func parseShell(script string) (shellScript, bool) {
	if len(script) > maxScript || depth(script) > maxDepth {
		return shellScript{}, false
	}
	file, err := syntax.NewParser(syntax.KeepComments(true)).Parse(strings.NewReader(script), "")
	if err != nil {
		return shellScript{}, false
	}
	r := shellReader{text: []byte(script)}
	syntax.Walk(file, r.visit)
	r.out.text = string(r.text)
	if r.unsure {
		r.out.text, r.out.fed = script, append(r.out.fed, r.written...)
	}
	if !r.shell {
		r.out.fed = nil
	}
	return r.out, true
}

// depth returns an upper estimate of how deep the brackets of a script are nested.
func depth(script string) (most int) {
	now := 0
	for i := range len(script) {
		switch script[i] {
		case '(', '[', '{':
			now++
			most = max(most, now)
		case ')', ']', '}':
			now = max(0, now-1)
		}
	}
	return most
}

// shellReader collects a shellScript.
type shellReader struct {
	out     shellScript
	text    []byte
	parents []syntax.Node
	written []string // here-documents that cat or tee write
	unsure  bool     // what cat writes or a comment has may be run
	shell   bool     // a command of the script runs text as a script
}

func (r *shellReader) visit(node syntax.Node) bool {
	if node == nil {
		r.parents = r.parents[:len(r.parents)-1]
		return true
	}
	switch n := node.(type) {
	case *syntax.Comment:
		r.blank(n)
	case *syntax.CaseItem:
		for _, pattern := range n.Patterns {
			r.blankText(pattern)
		}
	case *syntax.CallExpr:
		call := literals(n.Args)
		if len(call) > 0 {
			r.out.calls = append(r.out.calls, call)
		}
		for _, runs := range []string{"sh", "bash", "eval", "source", "."} {
			r.shell = r.shell || slices.Contains(call, runs)
		}
	case *syntax.Assign:
		if n.Value != nil && (n.Name == nil || n.Name.Value != "IFS") { // which holds separators
			r.out.words = append(r.out.words, literal(n.Value.Parts))
		}
	case *syntax.ArrayElem:
		if n.Value != nil {
			r.out.words = append(r.out.words, literal(n.Value.Parts))
		}
	case *syntax.WordIter:
		r.out.words = append(r.out.words, literals(n.Items)...)
	case *syntax.Redirect:
		switch {
		case n.Hdoc != nil && r.onlyWritten():
			r.written = append(r.written, literal(n.Hdoc.Parts))
			r.blankText(n.Hdoc)
		case n.Hdoc != nil:
			r.out.fed = append(r.out.fed, literal(n.Hdoc.Parts))
		case n.Op != syntax.WordHdoc:
			r.out.words = append(r.out.words, literal(n.Word.Parts))
		}
	case *syntax.ProcSubst, *syntax.CoprocClause: // may read what a command writes
		r.unsure = true
	case *syntax.SglQuoted: // bash and sh do not agree where $'…' ends
		r.unsure = r.unsure || n.Dollar
	case *syntax.FuncDecl:
		r.unsure = r.unsure || n.Name == nil || writes(n.Name.Value)
	}
	r.parents = append(r.parents, node)
	return true
}

// writes reports whether a command writes its input, and does nothing else with it.
func writes(command string) bool { return command == "cat" || command == "tee" }

// onlyWritten reports whether the command whose redirections are being visited writes its input to
// files or the standard output, where no other command of the script reads it.
func (r *shellReader) onlyWritten() bool {
	for _, parent := range r.parents {
		switch p := parent.(type) {
		case *syntax.BinaryCmd:
			if p.Op == syntax.Pipe || p.Op == syntax.PipeAll {
				return false
			}
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.FuncDecl, *syntax.CoprocClause:
			return false
		}
	}
	statement, ok := r.parents[len(r.parents)-1].(*syntax.Stmt)
	if !ok {
		return false
	}
	call, ok := statement.Cmd.(*syntax.CallExpr)
	return ok && len(call.Args) > 0 && writes(literal(call.Args[0].Parts))
}

// blankText blanks a word except for its expansions, whose commands run.
func (r *shellReader) blankText(w *syntax.Word) {
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			r.blank(lit)
		}
	}
}

func (r *shellReader) blank(n syntax.Node) {
	for i := n.Pos().Offset(); i < n.End().Offset() && i < uint(len(r.text)); i++ {
		if r.text[i] != '\n' {
			r.text[i] = ' '
		}
	}
}

func literals(words []*syntax.Word) (all []string) {
	for _, w := range words {
		all = append(all, literal(w.Parts))
	}
	return all
}

// literal returns a word as its command gets it, with the letter v for each expansion.
func literal(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescaped(p.Value))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(literal(p.Parts))
		default:
			b.WriteByte('v')
		}
	}
	return b.String()
}

// unescaped removes the backslashes that quote the next character, and the ends of lines that they
// continue.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
