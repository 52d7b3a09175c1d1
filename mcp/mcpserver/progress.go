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

const (
	reportInterval = time.Second
	maxLine        = 200 // bytes of the last line of output in a notification
)

// report sends progress notifications: as soon as the exec has an id, and every second until it has
// ended.
func (c *call) report(ctx context.Context, session *mcp.ServerSession, token any) {
	select {
	case <-c.opened:
	case <-c.ended:
		return
	}
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	progress := &progress{call: c, began: time.Now()}
	for {
		params := progress.now(ctx)
		params.ProgressToken = token
		if err := session.NotifyProgress(ctx, params); err != nil || ctx.Err() != nil {
			return // the client is gone
		}
		select {
		case <-ticker.C:
		case <-c.ended:
			return
		}
	}
}

// progress is the state of an exec for notifications.
type progress struct {
	call    *call
	began   time.Time
	last    float64
	record  audit.Record
	timeout time.Duration // of the exec; 0: unknown yet
	waited  time.Duration // in the queue
}

func (p *progress) now(ctx context.Context) *mcp.ProgressNotificationParams {
	elapsed := time.Since(p.began)
	// The protocol requires that progress increases, even if the first two notifications come at
	// the same time.
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
		params.Message += ": it waits for other execs to end"
		return params
	}
	if p.timeout > 0 {
		params.Total = max((p.waited + p.timeout).Seconds(), p.last)
	}
	params.Message += p.printed(ctx)
	return params
}

// printed describes the size and the last line of each output.
func (p *progress) printed(ctx context.Context) string {
	var text string
	for _, stream := range []string{"stdout", "stderr"} {
		out, size, err := p.call.server.cfg.Runner.OpenOutput(ctx, p.record, stream)
		if err != nil {
			continue
		}
		if size > 0 {
			text += fmt.Sprintf("; %s: %d bytes", stream, size)
			if line := lastLine(out, size); line != "" {
				text += ", last line: " + line
			}
		}
		_ = out.Close()
	}
	return text
}

func lastLine(out io.ReadSeeker, size int64) string {
	b := bytes.TrimRight(readTail(out, size, 4*maxLine), "\r\n")
	b = b[bytes.LastIndexAny(b, "\r\n")+1:]
	if len(b) > maxLine {
		b = b[len(b)-maxLine:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
