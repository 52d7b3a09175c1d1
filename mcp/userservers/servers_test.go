package userservers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The servers of the tests. They run in a sandbox as processes of this program.
func serve(mode string) {
	if mode == "good" {
		serveGood()
		return
	}
	raw := &rawServer{mode: mode, out: bufio.NewWriter(os.Stdout)}
	raw.serve(os.Stdin)
}

// serveGood is a server of the SDK.
func serveGood() {
	type text struct {
		Text string `json:"text"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "good", Version: "1"}, nil)
	say := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Echoes."},
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			return say(in.Text), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "pid"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return say(fmt.Sprint(os.Getpid())), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "env"}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		return say(os.Getenv(in.Text)), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "big"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return say(strings.Repeat("0123456789\n", 100_000)), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "image"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "look\x1b[2J"}, &mcp.ImageContent{Data: []byte("GIF89a"), MIMEType: "image/gif"},
			&mcp.AudioContent{Data: []byte("la"), MIMEType: "audio/wav"},
		}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, fmt.Errorf("no such city")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, req *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 2,
			Message: "half",
		})
		<-ctx.Done()
		return nil, nil, os.WriteFile(in.Text, []byte("canceled"), 0o644)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "more"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "late"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return say("late"), nil, nil
		})
		return say("added"), nil, nil
	})
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// rawServer writes messages that no library writes.
type rawServer struct {
	mode string
	out  *bufio.Writer
}

func (s *rawServer) say(format string, args ...any) {
	fmt.Fprintf(s.out, format+"\n", args...)
	s.out.Flush()
}

func (s *rawServer) result(id json.RawMessage, result string) {
	s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

const (
	initialized = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`
	oneTool     = `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
)

// forever waits until the process is killed. select {} would end a program without cgo: it has
// nothing else to wait for.
func forever() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, os.Interrupt)
	<-never
}

func (s *rawServer) serve(in io.Reader) {
	switch s.mode {
	case "exits":
		fmt.Fprintln(os.Stderr, "no such database: "+os.Getenv("TEST_PASSWORD")+"\x1b[2J")
		os.Exit(3)
	case "silent":
		forever()
	case "garbage":
		s.say("Welcome to the server!")
		forever()
	case "endless":
		for {
			_, _ = s.out.WriteString(strings.Repeat("x", 1<<16))
		}
	case "greets": // as programs do that were not written for pipes
		s.say("\xef\xbb\xbfStarting example server ...")
		s.say("[INFO] ready\n\n{\"level\":\"info\",\"msg\":\"listening\"}\n{broken\n  on two lines")
		fmt.Fprint(s.out, "\xef\xbb\xbf")
	case "spaces":
		for {
			_, _ = s.out.WriteString(strings.Repeat("\n", 1<<16))
		}
	case "stderr":
		for range 40 << 20 / (1 << 16) {
			_, _ = os.Stderr.WriteString(strings.Repeat("e", 1<<16))
		}
	case "daemon": // leaves a process that holds its pipes
		_ = exec.Command("sh", "-c", "sleep "+os.Args[3]+" & setsid sleep "+os.Args[3]+" &").Run()
		c := exec.Command("sleep", os.Args[3])
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		_ = c.Start()
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		_ = json.Unmarshal(line, &m)
		switch m.Method {
		case "initialize":
			s.initialize(m.ID)
		case "tools/list":
			s.list(m.ID, m.Params.Cursor)
			if s.mode == "deaf" { // reads nothing more
				forever()
			}
		case "tools/call":
			s.call(m.ID)
		case "ping":
			if s.mode != "hangs" {
				s.result(m.ID, `{}`)
			}
		}
	}
}

func (s *rawServer) initialize(id json.RawMessage) {
	switch s.mode {
	case "refuses":
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no license\u001b"}}`, id)
	case "version":
		s.result(id, `{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
	default:
		s.result(id, initialized)
	}
}

func (s *rawServer) list(id json.RawMessage, cursor string) {
	switch s.mode {
	case "manytools":
		var all []string
		for i := range 10_000 {
			all = append(all, fmt.Sprintf(`{"name":"t%d","description":"x","inputSchema":{"type":"object"}}`, i))
		}
		s.result(id, `{"tools":[`+strings.Join(all, ",")+`]}`)
	case "pages":
		s.result(id, fmt.Sprintf(`{"tools":[{"name":"p%s","inputSchema":{"type":"object"}}],"nextCursor":"%s1"}`, cursor, cursor))
	case "bigpages": // each page is within the bounds of a message
		s.result(id, fmt.Sprintf(`{"tools":[{"name":"p%s","inputSchema":{"type":"object","x":[%s0]}}],"nextCursor":"%s1"}`, cursor,
			strings.Repeat("[],", 200_000), cursor))
	case "description":
		s.result(id, `{"tools":[{"name":"t","description":"`+strings.Repeat("d", 100<<20)+`","inputSchema":{"type":"object"}}]}`)
	case "names":
		var all []string
		for _, name := range []string{`ok`, `ok`, `a_b`, `a.b`, `with space`, `a\u0000b`, ``, `../x`, strings.Repeat("n", 65)} {
			all = append(all, `{"name":"`+name+`","description":"fine\u001b[2J","inputSchema":{"type":"object"}}`)
		}
		s.result(id, `{"tools":[`+strings.Join(all, ",")+`,null]}`)
	case "schemas":
		deep := strings.Repeat(`{"type":"object","properties":{"a":`, 400) + `{}` + strings.Repeat(`}}`, 400)
		var all []string
		for i, schema := range []string{
			`{"type":"object","properties":{"n":{"type":"integer"}},"$schema":"http://json-schema.org/draft-07/schema#"}`,
			deep, `null`, `true`, `[]`, `{"type":"string"}`, `{"type":"object","$ref":"http://10.0.0.1/x"}`,
			`{"type":"object","properties":{"a":{"pattern":"(((a{1,1000}){1,1000}){1,1000})"}}}`,
			`{"type":"object","properties":{"h":{"type":"array","x-mcp-header":"X y"}}}`,
			`{"type":"object","description":"` + strings.Repeat("d", maxSchema) + `"}`,
		} {
			all = append(all, fmt.Sprintf(`{"name":"s%d","inputSchema":%s}`, i, schema))
		}
		s.result(id, `{"tools":[`+strings.Join(all, ",")+`,{"name":"none"}]}`)
	default:
		s.result(id, oneTool)
	}
}

func (s *rawServer) call(id json.RawMessage) {
	switch s.mode {
	case "hangs", "never":
	case "greets":
		s.say("DEBUG called")
		s.result(id, `{"content":[{"type":"text","text":"hello"}]}`)
		s.say("[DEBUG] answered")
	case "dies":
		fmt.Fprintln(os.Stderr, "a bug")
		os.Exit(7)
	case "half":
		fmt.Fprintf(s.out, `{"jsonrpc":"2.0","id":%s,"resul`, id)
		s.out.Flush()
		os.Exit(7)
	case "wrongids":
		s.result([]byte(`"unknown"`), `{}`)
		s.result([]byte(`4711`), `{}`)
		s.result(id, `{"content":[{"type":"text","text":"right"}]}`)
		s.result(id, `{"content":[{"type":"text","text":"twice"}]}`)
	case "flood": // more than a queue should hold, and less than the output of a process
		for i := range 3_000 {
			s.out.WriteString(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("m", 100) + `"}}` + "\n")
			fmt.Fprintf(s.out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":%d}}`+"\n", i)
			s.out.WriteString(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n")
		}
		s.result(id, `{"content":[{"type":"text","text":"after the flood"}]}`)
	case "asks": // the requests that servers may send
		for i, method := range []string{"roots/list", "sampling/createMessage", "elicitation/create", "other"} {
			s.say(`{"jsonrpc":"2.0","id":"q%d","method":"%s","params":{}}`, i, method)
		}
		s.result(id, `{"content":[{"type":"text","text":"asked"}]}`)
	case "asksmuch":
		for i := range 10_000 {
			s.say(`{"jsonrpc":"2.0","id":"q%d","method":"roots/list"}`, i)
		}
	case "huge":
		s.result(id, `{"content":[{"type":"text","text":"`+strings.Repeat("h", maxMessage)+`"}]}`)
	case "notaresult":
		s.result(id, `{"content":"none"}`)
	case "nested":
		s.result(id, `{"content":[{"type":"text","text":"n"}],"structuredContent":`+strings.Repeat("[", 900)+strings.Repeat("]", 900)+`}`)
	case "parts":
		s.result(id, `{"content":[`+strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"p"},`, 20_000), ",")+`]}`)
	case "error":
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool\u001b[2J"}}`, id)
	case "output": // as much as a process may give back
		for {
			s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`, strings.Repeat("o", 1<<20))
		}
	default:
		s.result(id, `{"content":[{"type":"text","text":"done"}]}`)
	}
}
