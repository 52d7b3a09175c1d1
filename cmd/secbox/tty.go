package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	client "secbox/clients/go"
	"secbox/fault"
)

// resizePoll is how often the size of the terminal is read. Windows has no signal for it.
const resizePoll = 500 * time.Millisecond

// runTerminal runs a command in a terminal that is connected to the user's.
func (o *execOptions) runTerminal(cmd *cobra.Command, api *client.Client, args []string) error {
	in, ok := cmd.InOrStdin().(*os.File)
	out, alsoOut := cmd.OutOrStdout().(*os.File)
	if !ok || !alsoOut || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return fault.New(fault.InvalidRequest, "--tty needs a terminal as standard input and output; leave it out in a pipe")
	}
	req, err := o.request(args)
	if err != nil {
		return err
	}
	size := sizeOf(out)
	req.Command.TTY = &size
	rec, err := api.Start(cmd.Context(), req)
	if err != nil {
		return err
	}
	saved, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	err = o.connect(cmd.Context(), rec.ExecID, in, out)
	_ = term.Restore(int(in.Fd()), saved)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 15*time.Second)
		defer cancel()
		if canceled := api.Cancel(ctx, rec.ExecID); canceled != nil && client.CodeOf(canceled) != string(fault.ExecEnded) {
			return fmt.Errorf("exec %s may still run: %w", rec.ExecID, err)
		}
	}
	rec, err = api.Wait(context.WithoutCancel(cmd.Context()), rec.ExecID)
	if err != nil {
		return err
	}
	rec.Artifacts, err = api.Artifacts(context.WithoutCancel(cmd.Context()), rec.ExecID)
	if err != nil {
		return err
	}
	return o.end(cmd, api, rec.State)
}

func sizeOf(out *os.File) client.TerminalSize {
	cols, rows, err := term.GetSize(int(out.Fd()))
	if err != nil || cols < 1 || rows < 1 {
		return client.TerminalSize{Cols: 80, Rows: 24}
	}
	return client.TerminalSize{Cols: cols, Rows: rows}
}

// connect passes keys and output between the user's terminal and the terminal of an exec, to its
// end.
func (o *execOptions) connect(ctx context.Context, execID string, in io.Reader, out *os.File) error {
	server, token, err := o.resolve()
	if err != nil {
		return err
	}
	header := http.Header{"User-Agent": {"secbox/" + version}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	address := "ws" + strings.TrimPrefix(strings.TrimSuffix(server, "/"), "http") + "/sandbox/execs/" + url.PathEscape(execID) + "/tty"
	noRedirects := &http.Client{ // they would get the token
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var conn *websocket.Conn
	for { // 503: it waits for its turn
		var resp *http.Response
		conn, resp, err = websocket.Dial(ctx, address, &websocket.DialOptions{HTTPHeader: header, HTTPClient: noRedirects})
		if err == nil {
			break
		}
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		if resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
			return err
		}
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	go typeKeys(ctx, conn, in)
	resizing, stop := context.WithCancel(ctx)
	defer stop()
	go resize(resizing, conn, out)
	for {
		kind, content, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if _, err := out.Write(content); err != nil {
				return err
			}
			continue
		}
		var m struct{ Type string }
		if err := json.Unmarshal(content, &m); err == nil && m.Type == "end" {
			return nil
		}
	}
}

// typeKeys sends what the user types. A read of the terminal cannot be ended, so it may outlive
// conn.
func typeKeys(ctx context.Context, conn *websocket.Conn, in io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if e := conn.Write(ctx, websocket.MessageBinary, buf[:n]); e != nil {
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = conn.Write(ctx, websocket.MessageBinary, []byte{4}) // Ctrl-D
			}
			return
		}
	}
}

func resize(ctx context.Context, conn *websocket.Conn, out *os.File) {
	ticker := time.NewTicker(resizePoll)
	defer ticker.Stop()
	for last := sizeOf(out); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := sizeOf(out)
		if now == last {
			continue
		}
		last = now
		text, _ := json.Marshal(map[string]any{"type": "resize", "cols": now.Cols, "rows": now.Rows})
		if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
			return
		}
	}
}
