//go:build unix

package scripts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestScripts runs programs by shell.run and python.run: what they print, exit with and leave.
func TestScripts(t *testing.T) {
	t.Parallel()
	r := inRow(t, "")
	// Keys are paths in the outputs, or in the exec when they begin with "exec.".
	for name, c := range map[string]struct {
		skill  string
		inputs object
		want   object
	}{
		"sh plain": {
			"shell.run",
			object{"script": "echo hi ü; echo no >&2; pwd"},
			object{
				"exit_code": 0, "stdout": "hi ü\n/workspace/work\n", "stderr": "no\n", "stdout_truncated": false, "stderr_truncated": false,
				"exec.stdout": "hi ü\n/workspace/work\n", "exec.stderr": "no\n",
			},
		},
		"sh args": {
			"shell.run",
			object{"script": `printf '%s|' "$@" $#`, "args": []string{"a b", "-x", "", "ü\n"}},
			object{"stdout": "a b|-x||ü\n|4|"},
		},
		"sh stdin":    {"shell.run", object{"script": "cat; cat", "stdin": "one\ntwo\x00"}, object{"stdout": "one\ntwo\x00"}},
		"sh no stdin": {"shell.run", object{"script": "cat; echo $?"}, object{"stdout": "0\n"}},
		"sh exit": {
			"shell.run",
			object{"script": "echo x; exit 7"},
			object{"exit_code": 7, "stdout": "x\n", "exec.status": "failed", "exec.error_reason": "nonzero_exit", "exec.exit_code": 7},
		},
		"sh signal": {
			"shell.run",
			object{"script": "echo x; kill -SEGV $$"},
			object{"exit_code": 139, "stdout": "x\n", "exec.exit_code": 139, "exec.error_reason": "nonzero_exit"},
		},
		"sh kills its group": {
			"shell.run",
			object{"script": `trap 'trap - TERM; kill 0' EXIT; sleep 1000 & echo x`},
			object{"exit_code": 143, "stdout": "x\n"},
		},
		"sh broken pipe": {"shell.run", object{"script": "yes | head -1; echo ${PIPESTATUS[0]}"}, object{"stdout": "y\n141\n", "stderr": ""}},
		"sh login shell": {"shell.run", object{"script": "shopt -q login_shell && echo login; echo $HOME"}, object{"stdout": "login\n/tmp\n"}},
		"sh long lines":  {"shell.run", object{"script": strings.Repeat("x=1\n", 100000) + "echo $LINENO"}, object{"stdout": "100001\n"}},
		"sh no UTF-8": {
			"shell.run",
			object{"script": `printf 'a\xff\xc3z'; printf '\xe2\x82' >&2`},
			object{"stdout": "a\ufffd\ufffdz", "stderr": "\ufffd"},
		},
		"sh error line": {
			"shell.run",
			object{"script": "\n\nnosuchthing"},
			object{"exit_code": 127, "stderr": "/tmp/script.sh: line 3: nosuchthing: command not found\n"},
		},
		"sh output gone": {"shell.run", object{"script": "ln -s /etc/passwd $SKILL_OUTPUT; echo x"}, object{"stdout": "x\n", "exec.status": "succeeded"}},
		"sh output a folder": {
			"shell.run",
			object{"script": "mkdir $SKILL_OUTPUT; echo x"},
			object{"exec.stdout": "x\n", "exec.status": "failed", "exec.error_reason": "invalid_output"},
		},
		"sh output a FIFO": {"shell.run", object{"script": "mkfifo $SKILL_OUTPUT; echo x"}, object{"stdout": "x\n", "exec.status": "succeeded"}},
		"sh too many args": {
			"shell.run",
			object{"script": ":", "args": slices.Repeat([]string{strings.Repeat("x", 30000)}, 75)},
			object{"exec.exit_code": 126, "exec.stderr": "bash cannot be started: Argument list too long\n"},
		},
		"sh from Windows": {
			"shell.run",
			object{"script": "\ufeffif true\r\nthen echo hi\r\nfi\r\n"},
			object{"exit_code": 0, "stdout": "hi\n", "stderr": ""},
		},
		"sh its own CR":   {"shell.run", object{"script": "printf 'a\r\nb'\ntrue"}, object{"exit_code": 0, "stdout": "a\r\nb"}},
		"py from Windows": {"python.run", object{"code": "\ufeffimport os\r\nprint(\"\"\"a\r\nb\"\"\")\r\n"}, object{"exit_code": 0, "stdout": "a\nb\n"}},
		"py many args": {"python.run", object{
			"code": "import sys; print(len(sys.argv[10]))",
			"args": slices.Repeat([]string{strings.Repeat("x", 30000)}, 10),
		}, object{"stdout": "30000\n"}},
		"py plain": {
			"python.run",
			object{"code": "import sys\nprint('hi ü', __name__, __file__)\nprint('no', file=sys.stderr)"},
			object{
				"exit_code": 0, "stdout": "hi ü __main__ /tmp/main.py\n", "stderr": "no\n", "stdout_truncated": false, "stderr_truncated": false,
				"exec.stdout": "hi ü __main__ /tmp/main.py\n", "exec.stderr": "no\n",
			},
		},
		"py args": {
			"python.run",
			object{"code": "import sys; print(sys.argv)", "args": []string{"a b", "-x"}},
			object{"stdout": "['/tmp/main.py', 'a b', '-x']\n"},
		},
		"py stdin": {
			"python.run",
			object{"code": "print(input(), [l for l in __import__('sys').stdin])", "stdin": "ü\n1\n2"},
			object{"stdout": "ü ['1\\n', '2']\n"},
		},
		"py no stdin": {"python.run", object{"code": "print(repr(open(0).read()))"}, object{"stdout": "''\n"}},
		"py traceback": {
			"python.run",
			object{"code": "def f():\n    raise ValueError('boom')\nf()"},
			object{"exit_code": 1, "exec.status": "failed", "stderr": "Traceback (most recent call last):\n  File \"/tmp/main.py\", line 3, in <module>\n    " +
				"f()\n  File \"/tmp/main.py\", line 2, in f\n    raise ValueError('boom')\nValueError: boom\n"},
		},
		"py exit": {
			"python.run",
			object{"code": "import sys\ntry: sys.exit(5)\nfinally: print('x')"},
			object{"exit_code": 5, "stdout": "x\n", "exec.exit_code": 5},
		},
		"py exit message": {"python.run", object{"code": "raise SystemExit('sorry')"}, object{"exit_code": 1, "stderr": "sorry\n"}},
		"py os exit":      {"python.run", object{"code": "import os; print('x'); os._exit(9)"}, object{"exit_code": 9, "stdout": "x\n"}},
		"py signal": {
			"python.run",
			object{"code": "import os; print('x'); os.kill(os.getpid(), 11)"},
			object{"exit_code": 139, "stdout": "x\n", "exec.exit_code": 139},
		},
		"py at exit": {
			"python.run",
			object{"code": "import atexit, threading, time\natexit.register(print, 'bye')\nthreading.Thread(target=lambda: print('thread')).start()"},
			object{"stdout": "thread\nbye\n"},
		},
		"py processes": {"python.run", object{"code": "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with " +
			"m.get_context('spawn').Pool(2) as p: print(p.map(f, [1, 2, 3]))"}, object{"stdout": "[1, 4, 9]\n"}},
		"py inspect": {"python.run", object{"code": "import inspect, pickle, dataclasses\n@dataclasses.dataclass\nclass A:\n    x: " +
			"int\nprint(inspect.getsource(A.__eq__) if 0 else pickle.loads(pickle.dumps(A(1))))"}, object{"stdout": "A(x=1)\n"}},
		"py nothing of ours": {"python.run", object{"code": "import sys, os\nprint([n for n in globals() if not n.startswith('__')], 'capture' in " +
			"sys.modules, any('skill' in p for p in sys.path), sys.path[-1])"}, object{"stdout": "['sys', 'os'] False False /workspace/work\n"}},
		"py isolated": {"python.run", object{"code": "import sys; print(sys.flags.isolated, sys.flags.ignore_environment)"}, object{"stdout": "1 1\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.with(t).use(c.skill, c.inputs)
			for path, want := range c.want {
				if !strings.HasPrefix(path, "exec.") {
					path = "outputs." + path
				}
				if n, ok := want.(int); ok {
					want = float64(n)
				}
				if got := a.at(path); got != want {
					t.Errorf("%s is %q, want %q in %v", path, got, want, a)
				}
			}
		})
	}
}

// TestScriptsBadInputs are refused before anything starts.
func TestScriptsBadInputs(t *testing.T) {
	t.Parallel()
	for skill, key := range map[string]string{"shell.run": "script", "python.run": "code"} {
		for field, inputs := range map[string]object{
			"inputs." + key:  {key: 1},
			"inputs.args":    {key: "x", "args": "x"},
			"inputs.args[1]": {key: "x", "args": []any{"x", "a\x00b"}},
			"inputs.args[0]": {key: "x", "args": []any{1}},
			"inputs.stdin":   {key: "x", "stdin": []string{}},
		} {
			refusesInputs(t, skill, inputs, field)
		}
		refusesInputs(t, skill, object{}, "inputs."+key)
		refusesInputs(t, skill, object{key: ""}, "inputs."+key)
		refusesInputs(t, skill, object{key: "x", "args": make([]string, 1001)}, "inputs.args")
		refusesInputs(t, skill, object{key: "x", "args": []string{strings.Repeat("x", 30001)}}, "inputs.args[0]")
	}
}

// TestScriptsPrintALot: the outputs hold the beginning of what came, and say that there was more.
func TestScriptsPrintALot(t *testing.T) {
	t.Parallel()
	r := inRow(t, "")
	const keep = 256 << 10
	for skill, inputs := range map[string]object{
		"shell.run":  {"script": "head -c 3000000 /dev/zero | tr '\\0' '\\1' >&2; printf x; yes ü | tr -d '\\n' | head -c 3000000"},
		"python.run": {"code": "import sys\nsys.stderr.write('\\1' * 3000000)\nsys.stdout.write('x' + 'ü' * 1500000)"},
	} {
		a := r.use(skill, inputs)
		stdout, stderr := a.str("outputs.stdout"), a.str("outputs.stderr")
		if stdout != "x"+strings.Repeat("ü", keep/2-1) || stderr != strings.Repeat("\x01", keep) { // an ü that was cut in two is left out
			t.Errorf("%s: %d bytes %.10q…, %d bytes %.10q…", skill, len(stdout), stdout, len(stderr), stderr)
		}
		for _, path := range []string{"outputs.stdout_truncated", "outputs.stderr_truncated"} {
			if a.at(path) != true {
				t.Errorf("%s: %s is %v", skill, path, a.at(path))
			}
		}
		if len(a.str("exec.stderr")) != 3000000 || a.str("exec.status") != "succeeded" {
			t.Errorf("%s: %v", skill, a.at("exec.status"))
		}
	}
	exact := r.uses("shell.run", object{"script": fmt.Sprintf("head -c %d /dev/zero | tr '\\0' a", keep)})
	if len(exact.str("stdout")) != keep || exact.at("stdout_truncated") != false {
		t.Errorf("what just fits: %d bytes, truncated %v", len(exact.str("stdout")), exact.at("stdout_truncated"))
	}
}
