package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

var errNotFound = errors.New("program not found")

// lookUp finds a program in the command's environment and directory, not in ours.
func lookUp(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) || filepath.VolumeName(name) != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return runnable(name, env)
	}
	denied := errNotFound
	for _, in := range filepath.SplitList(variable(env, "PATH")) {
		if in == "" {
			in = "."
		}
		if !filepath.IsAbs(in) {
			in = filepath.Join(dir, in)
		}
		found, err := runnable(filepath.Join(in, name), env)
		if err == nil {
			return found, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err // found but not executable, as a shell reports
		}
	}
	return "", denied
}

// runnable returns the file that is run under a name: on Windows, one with an extension of PATHEXT.
func runnable(path string, env []string) (string, error) {
	endings := []string{""}
	if runtime.GOOS == "windows" {
		listed := variable(env, "PATHEXT")
		if listed == "" {
			listed = ".COM;.EXE;.BAT;.CMD"
		}
		endings = nil
		for _, ending := range strings.Split(strings.ToLower(listed), ";") {
			if ending != "" && strings.HasSuffix(strings.ToLower(path), ending) {
				endings = []string{""}
				break
			}
			endings = append(endings, ending)
		}
	}
	for _, ending := range endings {
		fi, err := os.Stat(path + ending)
		switch {
		case err != nil && errors.Is(err, fs.ErrPermission):
			return "", fs.ErrPermission
		case err != nil:
			continue
		case fi.IsDir() || runtime.GOOS != "windows" && fi.Mode()&0o111 == 0:
			return "", fs.ErrPermission
		}
		return path + ending, nil
	}
	return "", errNotFound
}

// variable returns the value of an environment variable; on Windows the case of names does not
// count.
func variable(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if key, value, _ := strings.Cut(kv, "="); sameName(key, name) {
			return value
		}
	}
	return ""
}

func sameName(a, b string) bool {
	return a == b || runtime.GOOS == "windows" && strings.EqualFold(a, b)
}

// withoutRepeats returns the last value of each variable, in the order of the first occurrences.
func withoutRepeats(env []string) []string {
	at := make(map[string]int, len(env))
	kept := make([]string, 0, len(env))
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" { // Windows keeps the directory of each drive in such variables: =C:
			kept = append(kept, kv)
			continue
		}
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name)
		}
		if i, ok := at[name]; ok {
			kept[i] = kv
			continue
		}
		at[name] = len(kept)
		kept = append(kept, kv)
	}
	return kept
}
