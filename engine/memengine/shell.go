package memengine

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"secbox/engine"
)

// Command is a word of Shell. args[0] is its name. It returns an exit code, or how the whole job
// ended when exit is not nil.
type Command func(ctx context.Context, p *Process) (code int, exit *engine.Exit, err error)

// Process is one command of a script.
type Process struct {
	*Container
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer // after redirection
	Stderr io.Writer
}

// Shell returns the Func that runs a job's script: the last argument of `bash -lc`, or the job's
// arguments as one command. Commands are separated by semicolons, line ends or &&. Words may be
// quoted; $NAME is a variable of the job, but not within single quotes. >FILE, >>FILE and >&2
// redirect. The commands are
//
//	true  false  pwd  exit [CODE]  echo [-n] WORD…  cat [FILE…]  mkdir DIR…  rm FILE…  sleep SECONDS  kill -SIGNAL $$
//
// and the commands of more, which may be nil.
func Shell(more map[string]Command) Func {
	return shell(more).run
}

type shell map[string]Command

func (s shell) run(ctx context.Context, c *Container) (engine.Exit, error) {
	if dir, ok := c.Path(c.Job.Cwd, true); ok {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return engine.Exit{Code: 126, StartError: err.Error()}, nil
		}
	}
	argv := c.Job.Argv
	lines := []line{{words: argv}}
	if len(argv) > 2 && argv[0] == "bash" {
		lines = parse(argv[2], c.Job.Env)
	} else if s.command(argv[0]) == nil {
		return engine.Exit{Code: 127, StartError: argv[0] + ": executable file not found in $PATH"}, nil
	}
	code := 0
	stdin := c.Job.Stdin
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	for _, line := range lines {
		if ctx.Err() != nil {
			return Died(), nil
		}
		if line.onSuccess && code != 0 {
			continue
		}
		var exit *engine.Exit
		var err error
		code, exit, err = s.line(ctx, &Process{Container: c, Args: line.words, Stdin: stdin, Stdout: c.Stdout, Stderr: c.Stderr}, line)
		if err != nil {
			return engine.Exit{}, err
		}
		if exit != nil {
			return *exit, nil
		}
	}
	return engine.Exit{Code: code}, nil
}

func (s shell) line(ctx context.Context, p *Process, line line) (int, *engine.Exit, error) {
	if line.toStderr {
		p.Stdout = p.Stderr
	}
	if line.file != "" {
		f, err := p.create(line.file, line.appends)
		if err != nil {
			fmt.Fprintf(p.Stderr, "bash: %s: %v\n", line.file, err)
			return 1, nil, nil
		}
		defer f.Close()
		p.Stdout = f
	}
	run := s.command(line.words[0])
	if run == nil {
		fmt.Fprintf(p.Stderr, "bash: %s: command not found\n", line.words[0])
		return 127, nil, nil
	}
	return run(ctx, p)
}

func (s shell) command(name string) Command {
	if c := s[name]; c != nil {
		return c
	}
	return builtins[name]
}

// create opens a file of the project for writing.
func (p *Process) create(name string, appends bool) (*os.File, error) {
	host, ok := p.Path(p.abs(name), true)
	if !ok {
		return nil, syscall.EROFS
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if appends {
		how = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	return os.OpenFile(host, how, 0o644)
}

func (p *Process) abs(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(p.Job.Cwd, name)
}

var builtins = map[string]Command{
	"true":  func(context.Context, *Process) (int, *engine.Exit, error) { return 0, nil, nil },
	"false": func(context.Context, *Process) (int, *engine.Exit, error) { return 1, nil, nil },
	"pwd":   func(_ context.Context, p *Process) (int, *engine.Exit, error) { return p.print(p.Job.Cwd + "\n") },
	"echo":  echo,
	"cat":   cat,
	"exit":  exit,
	"sleep": sleep,
	"kill":  kill,
	"mkdir": func(_ context.Context, p *Process) (int, *engine.Exit, error) {
		return p.each(func(host string) error { return os.MkdirAll(host, 0o755) })
	},
	"rm": func(_ context.Context, p *Process) (int, *engine.Exit, error) { return p.each(os.Remove) },
}

func (p *Process) print(text string) (int, *engine.Exit, error) {
	_, _ = io.WriteString(p.Stdout, text)
	return 0, nil, nil
}

// each calls f with the file on this machine for each argument that is not an option.
func (p *Process) each(f func(host string) error) (int, *engine.Exit, error) {
	code := 0
	for _, name := range p.Args[1:] {
		if strings.HasPrefix(name, "-") {
			continue
		}
		err := os.ErrPermission
		if host, ok := p.Path(p.abs(name), true); ok {
			err = f(host)
		}
		if err != nil {
			fmt.Fprintf(p.Stderr, "%s: %s: %v\n", p.Args[0], name, err)
			code = 1
		}
	}
	return code, nil, nil
}

func echo(_ context.Context, p *Process) (int, *engine.Exit, error) {
	if len(p.Args) > 1 && p.Args[1] == "-n" {
		return p.print(strings.Join(p.Args[2:], " "))
	}
	return p.print(strings.Join(p.Args[1:], " ") + "\n")
}

func cat(_ context.Context, p *Process) (int, *engine.Exit, error) {
	if len(p.Args) == 1 {
		_, _ = io.Copy(p.Stdout, p.Stdin)
		return 0, nil, nil
	}
	code := 0
	for _, name := range p.Args[1:] {
		host, _ := p.Path(p.abs(name), false)
		content, err := os.ReadFile(filepath.Clean(host))
		if err != nil {
			fmt.Fprintf(p.Stderr, "cat: %s: No such file or directory\n", name)
			code = 1
		}
		_, _ = p.Stdout.Write(content)
	}
	return code, nil, nil
}

func exit(_ context.Context, p *Process) (int, *engine.Exit, error) {
	code := 0
	if len(p.Args) > 1 {
		code, _ = strconv.Atoi(p.Args[1])
	}
	return 0, &engine.Exit{Code: code & 0xff}, nil
}

// sleep ends early only when the job must die.
func sleep(ctx context.Context, p *Process) (int, *engine.Exit, error) {
	seconds := 0.0
	if len(p.Args) > 1 {
		seconds, _ = strconv.ParseFloat(p.Args[1], 64)
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, nil, nil
	case <-ctx.Done():
		died := Died()
		return 0, &died, nil
	}
}

func kill(_ context.Context, p *Process) (int, *engine.Exit, error) {
	signals := map[string]int{"-TERM": 15, "-15": 15, "-KILL": 9, "-9": 9, "-INT": 2, "-HUP": 1}
	if len(p.Args) == 3 && p.Args[2] == "$$" && signals[p.Args[1]] > 0 {
		signal := signals[p.Args[1]]
		return 0, &engine.Exit{Code: 128 + signal, Signal: signal}, nil
	}
	return 1, nil, nil
}

// line is one command of a script.
type line struct {
	words     []string
	file      string // for standard output; empty: none
	appends   bool
	toStderr  bool
	onSuccess bool // runs only when the command before it did well
}

// parse splits a script into lines. Unknown syntax becomes words.
func parse(script string, env map[string]string) []line {
	var lines []line
	var now line
	end := func(and bool) {
		if len(now.words) > 0 {
			lines = append(lines, now)
		}
		now = line{onSuccess: and}
	}
	for rest := script; rest != ""; {
		switch {
		case rest[0] == '\n' || rest[0] == ';':
			rest = rest[1:]
			end(false)
		case strings.HasPrefix(rest, "&&"):
			rest = rest[2:]
			end(true)
		case rest[0] == ' ' || rest[0] == '\t':
			rest = rest[1:]
		case strings.HasPrefix(rest, ">&2"):
			rest, now.toStderr = rest[3:], true
		case rest[0] == '>':
			rest = rest[1:]
			if now.appends = strings.HasPrefix(rest, ">"); now.appends {
				rest = rest[1:]
			}
			now.file, rest = word(strings.TrimLeft(rest, " "), env)
		default:
			var w string
			w, rest = word(rest, env)
			now.words = append(now.words, w)
		}
	}
	end(false)
	return lines
}

// word takes one word off a script.
func word(s string, env map[string]string) (w, rest string) {
	var b strings.Builder
	for s != "" && !strings.ContainsRune(" \t\n;>", rune(s[0])) && !strings.HasPrefix(s, "&&") {
		switch s[0] {
		case '\'':
			text, after, _ := strings.Cut(s[1:], "'")
			b.WriteString(text)
			s = after
		case '"':
			text, after, _ := strings.Cut(s[1:], `"`)
			b.WriteString(expand(text, env))
			s = after
		default:
			i := strings.IndexAny(s, " \t\n;>'\"&")
			switch {
			case i < 0:
				i = len(s)
			case i == 0:
				i = 1 // a single &
			}
			b.WriteString(expand(s[:i], env))
			s = s[i:]
		}
	}
	return b.String(), s
}

func expand(s string, env map[string]string) string {
	return os.Expand(s, func(name string) string {
		if name == "$" {
			return "$$"
		}
		return env[name]
	})
}
