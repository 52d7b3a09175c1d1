package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/audit"
	"secbox/policy"
)

// reportEvery is how often a client that wants to hear of progress does.
const reportEvery = time.Second

// maxLine is how much of the last line of output a report shows, in bytes.
const maxLine = 200

// report tells the client how its call is getting on: at once when the exec has its id, then every second until it has ended.
func (c *call) report(ctx context.Context, session *mcp.ServerSession, token any) {
	select {
	case <-c.opened:
	case <-c.ended:
		return
	}
	opened := time.Now()
	again := time.NewTicker(reportEvery)
	defer again.Stop()
	progress := &progress{call: c, began: opened}
	for {
		params := progress.now(ctx)
		params.ProgressToken = token
		if err := session.NotifyProgress(ctx, params); err != nil || ctx.Err() != nil {
			return // nobody listens any more
		}
		select {
		case <-again.C:
		case <-c.ended:
			return
		}
	}
}

// progress is what is known of an exec while it runs.
type progress struct {
	call    *call
	began   time.Time
	last    float64
	record  audit.Record
	timeout time.Duration // of the exec; 0: not known yet
	waited  time.Duration // in the queue
}

func (p *progress) now(ctx context.Context) *mcp.ProgressNotificationParams {
	elapsed := time.Since(p.began)
	// Progress must grow with each report, and the first has nothing to show for itself yet.
	p.last = max(elapsed.Seconds(), p.last+0.001)
	execID := p.call.id()
	params := &mcp.ProgressNotificationParams{Progress: p.last, Message: fmt.Sprintf("exec %s is open", execID)}
	if p.record.Status != audit.Running {
		record, err := p.call.server.cfg.History.Get(ctx, execID)
		if err != nil {
			return params
		}
		p.record = record
		if policy, err := policy.ParseSnapshot(record.PolicySnapshot); err == nil {
			p.timeout = time.Duration(policy.Values.TimeoutMS) * time.Millisecond
		}
		if record.Status == audit.Queued {
			p.waited = elapsed
		}
	}
	params.Message = fmt.Sprintf("exec %s is %s", execID, p.record.Status)
	if p.record.Status == audit.Queued {
		params.Message += ", it waits for a free place"
		return params
	}
	if p.timeout > 0 {
		params.Total = max((p.waited + p.timeout).Seconds(), p.last)
	}
	params.Message += p.printed(ctx)
	return params
}

// printed says how much the exec has printed, and its last whole line.
func (p *progress) printed(ctx context.Context) string {
	var said string
	for _, stream := range []string{"stdout", "stderr"} {
		out, size, err := p.call.server.cfg.Runner.OpenOutput(ctx, p.record, stream)
		if err != nil {
			continue
		}
		if size > 0 {
			said += fmt.Sprintf("; %s: %d bytes", stream, size)
			if line := lastLine(out, size); line != "" {
				said += ", last line: " + line
			}
		}
		_ = out.Close()
	}
	return said
}

func lastLine(out io.ReadSeeker, size int64) string {
	const tail = 4 * maxLine
	if _, err := out.Seek(max(0, size-tail), io.SeekStart); err != nil {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(out, tail))
	if err != nil {
		return ""
	}
	b = bytes.TrimRight(b, "\r\n")
	b = b[bytes.LastIndexAny(b, "\r\n")+1:]
	if len(b) > maxLine {
		b = b[len(b)-maxLine:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
