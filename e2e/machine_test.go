package e2e

import (
	"strings"
	"testing"
)

// TestProgramsFindAnOrdinaryMachine runs what programs do on any machine: share memory, look their
// own name up, count processors, start copies of themselves.
func TestProgramsFindAnOrdinaryMachine(t *testing.T) {
	t.Parallel()
	coldAndWarm(t, programsFindAnOrdinaryMachine)
}

func programsFindAnOrdinaryMachine(t *testing.T, how serving) {
	s := start(t, how.settings).serving(how)
	s.exec(object{"project_id": "machine", "exec": object{"script": "echo 'found = 1' > main.py"}})
	for _, c := range []struct {
		name   string
		exec   object
		policy object
		stdout string
	}{
		{"shared memory", object{"code": `# As data loaders of machine learning use it.
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=100 << 20)
m.buf[:] = b"x" * len(m.buf)
print("ok")
m.close(); m.unlink()`}, object{"memory_mb": 512}, "ok\n"},
		{"own name", object{"code": "import socket\nprint(socket.gethostbyname(socket.gethostname()))"}, nil, "127.0.0.1\n"},
		{"spawn", object{"code": `import multiprocessing
def f(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as p: print(p.map(f, range(4)))`}, nil, "[0, 1, 4, 9]\n"},
		{"forkserver", object{"code": `import multiprocessing
def f(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(2) as p: print(p.map(f, range(4)))`}, nil, "[0, 1, 4, 9]\n"},
		{"inspect", object{"code": "import inspect\ndef f(): return 7\nprint(inspect.getsource(f), end='')"}, nil, "def f(): return 7\n"},
		{"a traceback", object{"code": "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: print('try: 1 / 0' in traceback.format_exc())"}, nil, "True\n"},
		{"modules of the working directory", object{"code": "import main, sys\nprint(main.found, sys.argv)"}, nil, "1 ['/tmp/exec-code.py']\n"},
		{
			"modules of its own path first",
			object{"code": "import sys\nprint(sys.path[1:3])", "env": object{"PYTHONPATH": "/lib/mine"}},
			nil,
			"['/workspace/work', '/lib/mine']\n",
		},
		{"an encoding line", object{"code": "# -*- coding: gbk -*-\nprint('数据é')"}, nil, "数据é\n"},
		{
			"code as an argument",
			object{"kind": "python", "command": "python", "args": []string{"-c", "import sys; print(sys.argv)", "x"}},
			nil,
			"['-c', 'x']\n",
		},
		{
			"processors",
			object{"script": "nproc; echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $MKL_NUM_THREADS $GOMAXPROCS"},
			object{"cpu_cores": 1.5},
			"2\n2 2 2 2\n",
		},
		{"its own processors", object{"script": "nproc; echo $OPENBLAS_NUM_THREADS $GOMAXPROCS", "env": object{"OMP_NUM_THREADS": "5"}}, nil, "5\n1\n"},
		{"resolv.conf", object{"script": "cat /etc/resolv.conf"}, nil, "nameserver 192.0.2.1\n"},
	} {
		request := object{"project_id": "machine", "exec": c.exec}
		if c.policy != nil {
			request["policy_overrides"] = c.policy
		}
		result := s.exec(request)
		if result.str("stdout") != c.stdout {
			t.Errorf("%s: %q, want %q; %s %s", c.name, result.str("stdout"), c.stdout, result.str("detail"), result.str("stderr"))
		}
		if code, ok := c.exec["code"]; ok {
			args, _ := s.get("/sandbox/execs/" + result.str("exec_id")).at("args").([]any)
			if len(args) != 2 || args[1] != code {
				t.Errorf("%s: the record has %q", c.name, args)
			}
		}
	}
}

// TestSIGTERMBeforeTheTimeout: a job saves what it has, and its status is timeout nonetheless.
func TestSIGTERMBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	s := shared(t)
	result := s.exec(object{
		"project_id": "machine-sigterm", "policy_overrides": object{"timeout_ms": 20_000, "kill_grace_ms": 10_000},
		"exec": object{"script": "python3 -c 'import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print(\"saved\"), " +
			"sys.exit()))\ntime.sleep(1000)'; echo after"},
	})
	result.wants(t, object{"status": "timeout", "error_reason": "timeout", "stdout": "saved\n", "exit_code": 143})
	if !strings.Contains(result.str("detail"), "kill_grace_ms=10000 before timeout_ms=20000") {
		t.Error(result.str("detail"))
	}
}
