//go:build unix

package clients

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runExamples runs the programs of examples/ with the environment of clients.
func runExamples(t *testing.T, environ []string) {
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	environ = append(environ, "PYTHONPATH="+filepath.Join(examples, "../clients/python"), "PYTHONDONTWRITEBYTECODE=1")
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	python := func(args ...string) string { return run(t, dir, environ, "python3", args...) }

	const table = `import sqlite3, sys
db = sqlite3.connect("jobs.db")
if sys.argv[1] == "rows":
    print(db.execute("SELECT id, status, exit_code, stdout FROM jobs ORDER BY id").fetchall())
elif sys.argv[1] == "again":
    db.execute("UPDATE jobs SET status = 'taken' WHERE id = 1")
else:
    db.executemany("INSERT INTO jobs (script) VALUES (?)", [("date +%s%N",), ("exit 3",)])
db.commit()`
	python(filepath.Join(examples, "worker.py"), "jobs.db", "--once") // makes the table
	python("-c", table, "insert")
	python(filepath.Join(examples, "worker.py"), "jobs.db", "--once")
	rows := python("-c", table, "rows")
	if !strings.HasPrefix(rows, "[(1, 'succeeded', 0, '") || !strings.HasSuffix(rows, "(2, 'failed', 3, '')]\n") {
		t.Errorf("worker.py left %s", rows)
	}
	python("-c", table, "again") // as if the worker had died before it wrote the result
	python(filepath.Join(examples, "worker.py"), "jobs.db", "--once")
	if again := python("-c", table, "rows"); again != rows {
		t.Errorf("the second worker.py has run a job again: %s, after %s", again, rows)
	}

	python("-c", table, "insert")
	run(t, "..", environ, "go", "run", "-trimpath", "./examples/worker", filepath.Join(dir, "jobs.db"), "--once")
	if rows := python("-c", table, "rows"); !strings.Contains(rows, "(3, 'succeeded', 0, '") || !strings.HasSuffix(rows, "(4, 'failed', 3, '')]\n") {
		t.Errorf("the worker in Go left %s", rows)
	}

	write("jobs.jsonl", `{"id": "a", "script": "echo hello"}`+"\n")
	run(t, dir, environ, "node", "--no-warnings", filepath.Join(compiled(t), "test/worker.js"), "jobs.jsonl", "results.jsonl", "--once")
	results, err := os.ReadFile(filepath.Join(dir, "results.jsonl"))
	if want := `{"id":"a","status":"succeeded","exit_code":0,"stdout":"hello\n","detail":""}` + "\n"; err != nil || string(results) != want {
		t.Errorf("worker.ts left %s (%v)", results, err)
	}

	said := python(filepath.Join(examples, "agent.py"))
	if !strings.Contains(said, "unsupported operand") || !strings.HasSuffix(said, `{"role": "assistant", "answer": "The sales are 42 in all."}`+"\n") {
		t.Errorf("agent.py said %s", said)
	}

	if err := os.Mkdir(filepath.Join(dir, "wheels"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("wheels/greet-1.0-py3-none-any.whl", wheel(t))
	write("main.py", "import greet; print(greet.HELLO)")
	for range 2 { // the second exec finds what the first one has installed
		if said := python(filepath.Join(examples, "offline-packages/run.py"), "wheels", "main.py", "greet"); said != "hello\n" {
			t.Errorf("offline-packages/run.py said %q", said)
		}
	}
}

// wheel makes a package of Python.
func wheel(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, file := range [][2]string{
		{"greet.py", "HELLO = 'hello'\n"},
		{"greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n"},
		{"greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: secbox\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"greet-1.0.dist-info/RECORD", "greet.py,,\ngreet-1.0.dist-info/METADATA,,\ngreet-1.0.dist-info/WHEEL,,\ngreet-1.0.dist-info/RECORD,,\n"},
	} {
		w, err := archive.Create(file[0])
		if err == nil {
			_, err = w.Write([]byte(file[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
