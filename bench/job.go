package bench

import "fmt"

// job is what both sides run.
type job struct {
	name    string // as the report calls it
	kind    string // of the request
	command string
	args    []string
}

func shell(script string) job {
	return job{name: fmt.Sprintf("`bash -lc %s`", script), kind: "shell", command: "bash", args: []string{"-lc", script}}
}

// The jobs whose time is all core-api's and the engine's.
var (
	nothing     = shell("true")
	pythonPrint = job{name: "Python `print(1)`", kind: "python", command: "python", args: []string{"-c", "print(1)"}}
)
