//go:build linux

package sandboxtest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"secbox/fault"
	"secbox/sandbox"
)

var commandCases = []testCase{
	{name: "ExitCodes", run: exitCodes},
	{name: "ArgumentsAreNotALine", run: arguments},
	{name: "Shell", run: shell},
	{name: "WhereItStarts", run: whereItStarts},
	{name: "Stdin", run: stdin},
	{name: "Environment", run: environment},
	{name: "HiddenNamesAreRefused", run: hiddenNames},
	{name: "LargeAndBinaryOutput", run: largeOutput},
	{name: "OutputOverTheBound", run: outputOverTheBound},
	{name: "ManyAtOnce", run: manyAtOnce},
	{name: "CommandsThatAreNone", run: noCommands},
	{name: "CommandsAndFilesAreOfOneDirectory", run: oneDirectory},
	{name: "Locate", run: locate},
}

func itoa(n int) string { return strconv.Itoa(n) }

func exitCodes(b *bench) {
	b.plant("not-executable", "x")
	for line, want := range map[string]int{
		"true": 0, "exit 3": 3, "exit 255": 255, "kill -9 $$": 137, "kill -15 $$": 143, "kill -6 $$": 134,
		"no-such-program-anywhere": 127, "./not-executable": 126,
	} {
		r := b.shell(line)
		if r.ExitCode != want || r.TimedOut {
			b.Errorf("%s: %+v, want %d", line, *r, want)
		}
	}
	for program, want := range map[string]int{"no-such-program-anywhere": 127, "./not-executable": 126, "./no-such": 127, "/": 126} {
		r, err := b.s.Exec(b.ctx, sandbox.ExecSpec{Command: program, Dir: b.dir, User: b.user})
		if err != nil || r.ExitCode != want {
			b.Errorf("%s: %+v %v, want %d", program, r, err, want)
		}
	}
}

func arguments(b *bench) {
	args := []string{"%s|", "a b", "$HOME", "*", "'", `"`, `\`, "", "ü", "-n", "\n"}
	r, err := b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "printf", Args: args, Dir: b.dir, User: b.user})
	b.must(err)
	if want := strings.Join(args[1:], "|") + "|"; r.Stdout != want {
		b.Errorf("got %q, want %q", r.Stdout, want)
	}
}

func shell(b *bench) {
	spec := b.line("echo $((1+1)) | tr 2 3; echo e >&2")
	spec.Args = []string{"ignored"}
	r, err := b.s.Exec(b.ctx, spec)
	b.must(err)
	if r.Stdout != "3\n" || r.Stderr != "e\n" || r.StdoutBytes != 2 || r.StderrBytes != 2 {
		b.Errorf("%+v", *r)
	}
	program, err := b.s.GetShell(b.ctx, b.user)
	b.must(err)
	r, err = b.s.Exec(b.ctx, sandbox.ExecSpec{Command: program, Args: []string{"-c", "echo $0 and $1", "zero", "one"}, User: b.user})
	if err != nil || r.Stdout != "zero and one\n" {
		b.Errorf("%+v %v", r, err)
	}
}

func whereItStarts(b *bench) {
	b.plantDir("dir")
	b.plant("dir/file", "here")
	b.plantLink("dir", "link")
	for _, dir := range []string{b.at("dir"), b.at("dir/"), b.at("link")} {
		r, err := b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "cat", Args: []string{"file"}, Dir: dir, User: b.user})
		if err != nil || r.Stdout != "here" {
			b.Errorf("%s: %+v %v", dir, r, err)
		}
	}
	name := strings.TrimPrefix(b.at("dir/file"), sandbox.Root+"/")
	r, err := b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "cat", Args: []string{name}, User: b.user})
	if err != nil || r.Stdout != "here" {
		b.Errorf("without a directory: %+v %v", r, err)
	}
	r = b.shell(`cat "$` + sandbox.WorkspaceVariable + `/` + name + `"`)
	if r.Stdout != "here" {
		b.Errorf("by the variable: %+v", *r)
	}
	if !b.f.WorkspaceElsewhere {
		if r := b.shell("cat " + b.at("dir/file")); r.Stdout != "here" {
			b.Errorf("by the path: %+v", *r)
		}
	}
}

func stdin(b *bench) {
	binary := strings.Repeat("\x00\xff\n\x80", 1000)
	large := strings.Repeat("0123456789abcdef", 4<<20/16)
	for _, in := range []string{"", "line\n", binary, large} {
		spec := b.line("cat")
		spec.Stdin = in
		r, err := b.s.Exec(b.ctx, spec)
		if err != nil || r.ExitCode != 0 || r.Stdout != in {
			b.Errorf("%d bytes: %v", len(in), err)
		}
		spec = b.line("exit 4") // does not read
		spec.Stdin = in
		if r, err = b.s.Exec(b.ctx, spec); err != nil || r.ExitCode != 4 {
			b.Errorf("unread, %d bytes: %+v %v", len(in), r, err)
		}
		spec = b.line("exec 0<&-; echo closed")
		spec.Stdin = in
		if r, err = b.s.Exec(b.ctx, spec); err != nil || r.Stdout != "closed\n" {
			b.Errorf("closed, %d bytes: %+v %v", len(in), r, err)
		}
	}
}

// Planted is part of the environment in which a fixture's program must be started: no command may
// see it.
var Planted = []string{
	"KUBERNETES_SERVICE_HOST=planted", "SERVICE_TOKEN=planted", "SECRET_KEY=planted", "secret_lower=planted",
	"CORE_API_ADMIN_TOKEN=planted", "SECBOX_TOKEN=planted", "DATABASE_URL=planted",
}

func environment(b *bench) {
	spec := b.line("env")
	spec.Env = []string{"GIVEN=a=b c", "EMPTY=", "TWICE=1", "TWICE=2", "PATH_OF_MINE=/x"}
	r, err := b.s.Exec(b.ctx, spec)
	b.must(err)
	seen := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	for _, want := range []string{"GIVEN=a=b c", "EMPTY=", "TWICE=2", "PATH_OF_MINE=/x"} {
		if !slices.Contains(seen, want) {
			b.Errorf("%q has not arrived", want)
		}
	}
	for _, kv := range seen {
		name, value, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		for _, hidden := range []string{"KUBERNETES_", "SERVICE_", "SECRET_", "CORE_API_", "SECBOX_", "DATABASE_URL"} {
			if strings.HasPrefix(upper, hidden) && name != sandbox.WorkspaceVariable {
				b.Errorf("the command sees %s", name)
			}
		}
		if value == "planted" || name == "TWICE" && value != "2" {
			b.Errorf("the command sees %s", kv)
		}
	}
	if !slices.ContainsFunc(seen, func(kv string) bool { return strings.HasPrefix(kv, sandbox.WorkspaceVariable+"=/") }) {
		b.Errorf("%s is missing", sandbox.WorkspaceVariable)
	}
	spec = b.line(`mkdir -p bin && printf '#!/bin/sh\necho mine\n' > bin/mine && chmod +x bin/mine; PATH="$PWD/bin:$PATH" mine`)
	if r, err = b.s.Exec(b.ctx, spec); err != nil || r.Stdout != "mine\n" {
		b.Errorf("%+v %v", r, err)
	}
}

func hiddenNames(b *bench) {
	for _, kv := range []string{"KUBERNETES_X=1", "SERVICE_X=1", "SECRET_X=1", "secret_x=1", "Service_X=", "no-value", "=x", "NUL=\x00"} {
		spec := b.line("echo ran > ran")
		spec.Env = []string{kv}
		if _, err := b.s.Exec(b.ctx, spec); !fault.Is(err, fault.InvalidRequest) {
			b.Errorf("%q: %v", kv, err)
		}
	}
	if r := b.shell("ls"); r.Stdout != "" {
		b.Error("a command ran")
	}
}

func largeOutput(b *bench) {
	// 8 MiB with every byte value, copied by the command.
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	content := bytes.Repeat(every, 8<<20/256)
	b.plant("large", string(content))
	r := b.shell("cat large; head -c 1000 large >&2")
	if r.Stdout != string(content) || r.StdoutBytes != 8<<20 || r.Stderr != string(content[:1000]) {
		b.Errorf("%d and %d bytes came, of %d", len(r.Stdout), len(r.Stderr), r.StdoutBytes)
	}
}

func outputOverTheBound(b *bench) {
	spec := b.line("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2; exit 5")
	spec.MaxStdout, spec.MaxStderr = 1000, 1
	r, err := b.s.Exec(b.ctx, spec)
	b.must(err)
	if len(r.Stdout) != 1000 || len(r.Stderr) != 1 || r.StdoutBytes != 3_000_000 || r.StderrBytes != 2_000_000 || r.ExitCode != 5 {
		b.Errorf("%d %d %d %d %d", len(r.Stdout), len(r.Stderr), r.StdoutBytes, r.StderrBytes, r.ExitCode)
	}
	spec = b.line("head -c 20000000 /dev/zero")
	spec.MaxStdout = 1 << 40
	if r, err = b.s.Exec(b.ctx, spec); err != nil || len(r.Stdout) != sandbox.MaxOutputBytes || r.StdoutBytes != 20_000_000 {
		b.Errorf("%v", err)
	}
}

// manyAtOnce runs all methods concurrently; each call checks its own answer.
func manyAtOnce(b *bench) {
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			name := "mine-" + itoa(i)
			path := b.at(name)
			for round := range 4 {
				word := itoa(i*1000 + round)
				b.must2(b.s.MkdirAll(b.ctx, path, 0o755, b.user))
				b.must2(b.s.WriteFile(b.ctx, path+"/file", []byte(word), 0o644, b.user))
				spec := b.line("cat file - && echo $WORD >&2 && exit " + itoa(i))
				spec.Dir, spec.Env, spec.Stdin = path, []string{"WORD=" + word}, strings.Repeat(word, 5000)
				r, err := b.s.Exec(b.ctx, spec)
				if err != nil || r.ExitCode != i || r.Stdout != word+spec.Stdin || r.Stderr != word+"\n" {
					b.Errorf("%d: %v", i, err)
				}
				got, err := b.s.ReadFile(b.ctx, path+"/file", b.user)
				if err != nil || string(got) != word {
					b.Errorf("%d: %q %v", i, got, err)
				}
				list, err := b.s.ReadDir(b.ctx, path, b.user)
				if err != nil || len(list) != 1 {
					b.Errorf("%d: %v %v", i, list, err)
				}
				b.must2(b.s.RemoveAll(b.ctx, path, b.user))
			}
		})
	}
	all.Wait()
}

// must2 is must for other goroutines.
func (b *bench) must2(err error) {
	b.Helper()
	if err != nil {
		b.Error(err)
	}
}

func noCommands(b *bench) {
	for _, spec := range []sandbox.ExecSpec{
		{},
		{Shell: true},
		{Command: "a\x00b"},
		{Command: "true", Args: []string{"\x00"}},
		{Command: "echo \x00", Shell: true},
		{Command: "\xff"},
		{Command: "echo", Args: []string{"\xff"}},
		{Command: "env", Env: []string{"A=\xff"}}, // JSON cannot carry them
	} {
		spec.User, spec.Dir = b.user, b.dir
		if _, err := b.s.Exec(b.ctx, spec); !fault.Is(err, fault.InvalidRequest) {
			b.Errorf("%q %q: %v", spec.Command, spec.Args, err)
		}
	}
}

func oneDirectory(b *bench) {
	b.must(b.s.WriteFile(b.ctx, b.at("script"), []byte("#!/bin/sh\necho from $1 > result\n"), 0o755, b.user))
	r, err := b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "./script", Args: []string{"script"}, Dir: b.dir, User: b.user})
	b.must(err)
	got, err := b.s.ReadFile(b.ctx, b.at("result"), b.user)
	if r.ExitCode != 0 || err != nil || string(got) != "from script\n" {
		b.Errorf("%+v: %q %v", *r, got, err)
	}
	// Commands and file operations may change each other's files.
	b.must(b.s.WriteFile(b.ctx, b.at("result"), []byte("changed"), 0o644, b.user))
	if r := b.shell("echo more >> result && rm script && cat result"); r.Stdout != "changedmore\n" {
		b.Errorf("%+v", *r)
	}
}

func locate(b *bench) {
	l, ok := b.s.(sandbox.Locator)
	if !ok {
		b.Fatal("it cannot say where commands run")
	}
	where, err := l.Locate(b.ctx, b.user)
	b.must(err)
	if where.Backend == "" || where.Backend == sandbox.RouterName || where.User.ID != b.user.ID || where.User.AgentID != b.user.AgentID {
		b.Errorf("%+v", where)
	}
	spec := b.line("echo hi")
	spec.User, spec.ExecID = where.User, "0190c7a0-0000-7000-8000-000000000000"
	r, err := b.s.Exec(b.ctx, spec)
	if err != nil || r.Stdout != "hi\n" {
		b.Errorf("%+v %v", r, err)
	}
}
