//go:build linux

package worker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// lookUp finds the program in the image's PATH, which this process has, or, with OwnPath, in the
// job's PATH.
func lookUp(spec initproto.Job, env []string) (string, error) {
	name := spec.Argv[0]
	if !spec.OwnPath {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", errors.Unwrap(err)
		}
		return path, nil
	}
	if strings.Contains(name, "/") {
		return name, nil // relative to the working directory; exec reports its errors
	}
	path := ""
	for _, kv := range env {
		if after, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = after
		}
	}
	refused := error(nil)
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // programs in the working directory are named ./program
		}
		candidate := filepath.Join(dir, name)
		fi, err := os.Stat(candidate)
		if err != nil || fi.IsDir() {
			continue
		}
		if fi.Mode().Perm()&0o111 != 0 && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
		refused = os.ErrPermission
	}
	if refused != nil {
		return "", refused
	}
	return "", exec.ErrNotFound
}

// environment returns the image's variables and the job's. A job's variable replaces an image's
// variable with the same name.
func environment(image, job []string, pathTail string) []string {
	named := make(map[string]bool, len(job))
	for _, kv := range job {
		name, _, _ := strings.Cut(kv, "=")
		named[name] = true
	}
	env := slices.DeleteFunc(slices.Clone(image), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return named[name]
	})
	if pathTail != "" && !named["PATH"] {
		for i, kv := range env {
			if strings.HasPrefix(kv, "PATH=") {
				env[i] = kv + ":" + pathTail
			}
		}
	}
	return append(env, job...)
}

// threads is the variable of OpenMP, which nproc and the libraries of followsThreads obey, too.
const threads = "OMP_NUM_THREADS"

// Variables from which programs learn how many processors they may use: without them, they count
// the machine's, and start a thread for each.
var (
	followsThreads = []string{"OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"}
	countsCPUs     = []string{
		"GOMAXPROCS", "JULIA_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "PYTHON_CPU_COUNT", "RAYON_NUM_THREADS",
	}
)

// withCPUs adds the variables that env does not have. If it has OpenMP's variable, it has chosen
// for the libraries that follow it as well.
func withCPUs(env []string, cpus int64) []string {
	if cpus == 0 {
		return env
	}
	set := func(name string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	names := countsCPUs
	if !set(threads) {
		names = slices.Concat([]string{threads}, followsThreads, countsCPUs)
	}
	for _, name := range names {
		if !set(name) {
			env = append(env, name+"="+strconv.FormatInt(cpus, 10))
		}
	}
	return env
}
