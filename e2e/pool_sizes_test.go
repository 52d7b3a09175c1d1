package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"secbox/settings"
)

// TestCommandsOfAnySize checks that too large commands are refused without any effect, and that the
// largest accepted ones run, cold and warm.
func TestCommandsOfAnySize(t *testing.T) {
	t.Parallel()
	const limit = 12 << 20 // bytes of a body; the largest that is accepted has 9 million
	s := tidy(t, func(c *settings.Settings) { c.HTTP.MaxBodyBytes = limit })
	s.fill(shell("demo", "true"), 1)
	before, rows := s.get("/sandbox/pool"), len(s.records(""))
	many := func(n, size int) object {
		env := object{}
		for i := range n {
			env[fmt.Sprintf("V%07d", i)] = strings.Repeat("x", size)
		}
		return env
	}
	manyArgs := func(n, size int) []string {
		args := []string{"-lc", "true", "bash"}
		for range n {
			args = append(args, strings.Repeat("x", size))
		}
		return args
	}
	with := func(env object, args []string) object {
		e := object{"kind": "shell", "command": "bash", "args": []string{"-lc", "true"}}
		if env != nil {
			e["env"] = env
		}
		if args != nil {
			e["args"] = args
		}
		return object{"project_id": "demo", "exec": e}
	}
	s.client = &http.Client{Transport: &http.Transport{}} // holding megabytes against the contract takes half a minute, and is not the point
	defer s.client.CloseIdleConnections()
	for _, c := range []struct {
		name    string
		request object
		status  int
		code    string
	}{
		{"one variable beyond the limit", with(object{"K": strings.Repeat("x", limit)}, nil), http.StatusRequestEntityTooLarge, "body_too_large"},
		{"variables beyond the limit", with(many(60_000, 220), nil), http.StatusRequestEntityTooLarge, "body_too_large"},
		{"arguments beyond the limit", with(nil, manyArgs(12, 1<<20)), http.StatusRequestEntityTooLarge, "body_too_large"},
		{"a variable just below the limit", with(object{"K": strings.Repeat("x", limit-1000)}, nil), http.StatusBadRequest, "invalid_request"},
		{"very many small variables", with(many(200_000, 2), nil), http.StatusBadRequest, "invalid_request"},
		{"very many small arguments", with(nil, manyArgs(300_000, 1)), http.StatusBadRequest, "invalid_request"},
		{"11 arguments of 1 MiB", with(nil, manyArgs(11, 1<<20)), http.StatusBadRequest, "invalid_request"},
		{"a variable one byte too long", with(object{"K": strings.Repeat("x", 128<<10-2)}, nil), http.StatusBadRequest, "invalid_request"},
		{"a script one byte too long", shell("demo", strings.Repeat("#", 128<<10)), http.StatusBadRequest, "invalid_request"},
		{"a name of 300 bytes", with(object{strings.Repeat("N", 300): "x"}, nil), http.StatusBadRequest, "invalid_request"},
	} {
		problem := s.refused(c.status, c.code, c.request)
		if len(problem.str("detail")) > 2000 {
			t.Errorf("%s: the refusal has %d characters", c.name, len(problem.str("detail")))
		}
	}
	after := s.get("/sandbox/pool")
	for _, name := range []string{"hits", "misses", "refills", "idle", "refill_failures"} {
		if before.num(name) != after.num(name) {
			t.Errorf("%s was %v and is %v", name, before.num(name), after.num(name))
		}
	}
	if n := len(s.records("")); n != rows {
		t.Errorf("%d rows of refusals", n-rows)
	}

	// Bash itself takes seconds for tens of thousands of variables or arguments.
	for name, request := range map[string]object{
		"the longest script": shell("demo", "echo ran #"+strings.Repeat("x", 128<<10-1-len("echo ran #"))),
		"the longest variable, every byte escaped": {
			"project_id": "demo",
			"exec": object{
				"kind": "shell", "command": "bash", "args": []string{"-lc", "echo ran"},
				"env": object{"K": strings.Repeat("\x01", 128<<10-3), "M": strings.Repeat("<", 128<<10-3)},
			},
		},
		"many small variables and arguments": {
			"project_id": "demo",
			"exec": object{
				"kind": "shell", "command": "bash", "args": append([]string{"-lc", "echo ran"}, manyArgs(10_000, 1)...),
				"env": many(5_000, 2),
			},
		},
		"all there is room for": {
			"project_id": "demo",
			"exec":       object{"kind": "shell", "command": "bash", "args": []string{"-lc", "echo ran"}, "env": escaped(12)},
		},
		"a standard input of 8 MB": {
			"project_id": "demo",
			"exec":       object{"kind": "shell", "command": "bash", "args": []string{"-lc", "wc -c >&2; echo ran"}, "stdin": strings.Repeat("x", 8<<20)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.under(t) // cold or warm, as it happens; the largest both ways
			if name == "all there is room for" {
				s.serving(warm).exec(request).wants(t, object{"status": "succeeded", "exit_code": 0, "stdout": "ran\n"})
			}
			s.exec(request).wants(t, object{"status": "succeeded", "exit_code": 0, "stdout": "ran\n"})
		})
	}
}

// escaped returns an environment that is six times as large in JSON: n variables of 120 KiB, all of
// control characters.
func escaped(n int) object {
	env := object{}
	for i := range n {
		env[fmt.Sprintf("V%d", i)] = strings.Repeat("\x01", 120<<10)
	}
	return env
}
