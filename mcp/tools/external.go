package tools

import (
	"context"
	"fmt"
	"strings"

	"secbox/mcp/offload"
)

// External makes a tool of a function that asks another program, such as an MCP server in the
// user's sandbox. The function gets the arguments as JSON that is well-formed but not checked
// against the schema. report, which may be nil, shows a line of text as progress. The text of its
// result is shown with escapes for control characters.
func External(t Tool, call func(ctx context.Context, arguments []byte, report func(line string)) (*Result, error)) *Tool {
	t.call = func(ctx context.Context, s *Session, arguments []byte) (*Result, error) {
		var show func(string)
		if to := callerOf(ctx).Progress; to != nil {
			reports := newReporter(to)
			defer reports.stop()
			show = func(line string) { reports.output([]byte(visible(cut(line, maxProgressBytes)) + "\n")) }
		}
		r, err := call(ctx, arguments, show)
		if err != nil {
			return nil, err
		}
		r.Text = Printable(r.Text)
		if s.kept == nil && len(r.Text) > offload.MaxInline {
			r.Text = strings.ToValidUTF8(cut(r.Text, offload.MaxInline), "") + fmt.Sprintf("\n… (%d bytes in all; the rest was not kept)\n",
				len(r.Text))
		}
		return r, nil
	}
	return &t
}

// Printable writes control characters, except for tabs and the ends of lines, and bytes that are
// not UTF-8 as \x1b.
func Printable(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		end := ""
		if whole, ok := strings.CutSuffix(line, "\n"); ok {
			line, end = strings.TrimSuffix(whole, "\r"), "\n"
		}
		b.WriteString(visible(line) + end)
	}
	return b.String()
}

// Reserve counts bytes of memory for a call until its result is sent; fault.ServerBusy if they do
// not fit.
func Reserve(ctx context.Context, bytes int64) error { return callerOf(ctx).reserve(bytes) }
