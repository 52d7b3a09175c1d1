// Package recipe reads the file of an own image and makes a Dockerfile and a build context of it.
// All of the file is hostile to the syntax of Dockerfiles and shells: names of packages have strict
// patterns, other texts go through as base64 or quoted. Files come through an os.Root. The package
// starts nothing and knows no engine.
package recipe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"secbox/fault"
	"secbox/internal/whole"
)

// Bounds of a file.
const (
	MaxBytes   = 64 << 10 // of the file
	maxItems   = 300      // of a list
	maxFiles   = 40       // each is a layer, and engines have at most some 125
	maxRun     = 24 << 10 // bytes of all shell lines: a process takes at most 128 KiB as an argument
	maxEnv     = 100
	maxEnvText = 4 << 10
)

// Recipe is what an image is made of.
type Recipe struct {
	Base  string // empty: the sandbox image
	Apt   []string
	Pip   Pip
	Npm   []string
	Files []File
	Run   []string
	Env   []Variable // by name
}

// Pip is what pip installs, with hashes only.
type Pip struct {
	Packages []string // "name==version --hash=sha256:…"
	Lock     string   // a path relative to the file, in the format of pip's --require-hashes
	Wheels   string   // a directory relative to the file; pip uses no index then
}

func (p Pip) used() bool { return len(p.Packages) > 0 || p.Lock != "" }

// File is a file or directory that is copied before packages are installed.
type File struct {
	From string // relative to the file
	To   string // absolute
}

// Variable is a variable of the environment of all jobs.
type Variable struct{ Name, Value string }

// text is a scalar with its line.
type text struct {
	value string
	line  int
}

func (t *text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return fmt.Errorf("line %d: must be one text", n.Line)
	}
	t.value, t.line = n.Value, n.Line
	return nil
}

// pip is a list of packages, or a mapping.
type pip struct {
	Packages []text `yaml:"packages"`
	Lock     text   `yaml:"lock"`
	Wheels   text   `yaml:"wheels"`
}

func (p *pip) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode(&p.Packages)
	}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 { // Decode does not refuse others
		if key := n.Content[i]; !slices.Contains([]string{"packages", "lock", "wheels"}, key.Value) {
			return fmt.Errorf("line %d: pip has no key %q; it has packages, lock and wheels", key.Line, whole.Shorten(key.Value))
		}
	}
	type plain pip
	return n.Decode((*plain)(p))
}

// Parse reads a file. Its errors are fault.InvalidRequest and name the lines.
func Parse(data []byte) (Recipe, error) {
	if len(data) > MaxBytes {
		return Recipe{}, fault.New(fault.InvalidRequest, "the file has more than %d KiB; move shell lines into files", MaxBytes>>10)
	}
	var file struct {
		Base  text          `yaml:"base"`
		Apt   []text        `yaml:"apt"`
		Pip   pip           `yaml:"pip"`
		Npm   []text        `yaml:"npm"`
		Files map[text]text `yaml:"files"`
		Run   []text        `yaml:"run"`
		Env   map[text]text `yaml:"env"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	switch err := decoder.Decode(&file); {
	case errors.Is(err, io.EOF):
		return Recipe{}, fault.New(fault.InvalidRequest, "the file is empty; say at least what to install, such as apt: [sqlite3]")
	case err != nil:
		return Recipe{}, fault.New(fault.InvalidRequest, "%s", plain(err))
	case !errors.Is(decoder.Decode(&yaml.Node{}), io.EOF):
		return Recipe{}, fault.New(fault.InvalidRequest, "the file has more than one YAML document; keep one")
	}
	c := checker{}
	r := Recipe{
		Base: c.one(file.Base, "base", baseRef, "an image of the engine, or one of a registry by its digest (NAME@sha256:…)"),
		Apt:  c.list(file.Apt, "apt", aptName, "a package such as sqlite3 or sqlite3=3.40.1-2"),
		Pip: Pip{
			Packages: c.list(file.Pip.Packages, "pip", pipLine, "a package with hashes such as six==1.16.0 --hash=sha256:…"),
			Lock:     c.host(file.Pip.Lock, "pip.lock"), Wheels: c.host(file.Pip.Wheels, "pip.wheels"),
		},
		Npm: c.list(file.Npm, "npm", npmName, "a package with its exact version such as left-pad@1.3.0"),
		Run: c.lines(file.Run),
		Env: c.env(file.Env), Files: c.files(file.Files),
	}
	switch {
	case len(r.Pip.Packages) > 0 && r.Pip.Lock != "":
		c.add(file.Pip.Lock.line, "pip has both packages and a lock; keep one")
	case r.Pip.Wheels != "" && !r.Pip.used():
		c.add(file.Pip.Wheels.line, "pip has wheels and nothing to install; add a lock, or packages")
	}
	return r, c.err()
}

// plain is the text of an error of the YAML library, without the names of this program's types.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "unmarshal errors:")), " ")
	text = unknownKey.ReplaceAllString(text, "there is no key $1; the keys are base, apt, pip, npm, files, run and env")
	text = goType.ReplaceAllString(text, "that")
	return string(whole.End([]byte(text[:min(len(text), 400)])))
}

var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type struct \{.*`)
	goType     = regexp.MustCompile(`(\[\]recipe\.text|map\[recipe\.text\]recipe\.text|struct \{.*)`)
)

// The patterns of names. None has a character that a shell or a Dockerfile interprets.
var (
	baseRef  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}(@sha256:[0-9a-f]{64})?$`)
	aptName  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,127}(:[a-z0-9-]+)?(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?$`)
	npmName  = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,127}@[0-9][0-9A-Za-z.+-]{0,63}$`)
	pipLine  = regexp.MustCompile(`^` + pipName + `( *--hash=sha256:[0-9a-f]{64})+$`)
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	imgPath  = regexp.MustCompile(`^/[A-Za-z0-9_./+@%=,~-]{1,511}$`)
	hostPath = regexp.MustCompile(`^[^\x00-\x1f\\]{1,511}$`)
)

const pipName = `[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}`

// reserved are the directories of an image that are others' at run time.
var reserved = []string{"/proc", "/sys", "/dev", "/workspace", "/opt/secbox", "/tmp"}

type checker struct{ bad []string }

func (c *checker) add(line int, format string, args ...any) {
	c.bad = append(c.bad, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
}

func (c *checker) err() error {
	if len(c.bad) == 0 {
		return nil
	}
	return fault.New(fault.InvalidRequest, "%s", strings.Join(c.bad[:min(len(c.bad), 10)], "; "))
}

func (c *checker) one(t text, key string, pattern *regexp.Regexp, want string) string {
	if t.line > 0 && !pattern.MatchString(t.value) {
		c.add(t.line, "%s: %q is not %s", key, whole.Shorten(t.value), want)
	}
	return t.value
}

func (c *checker) list(all []text, key string, pattern *regexp.Regexp, want string) []string {
	if len(all) > maxItems {
		c.add(all[maxItems].line, "%s has more than %d entries", key, maxItems)
		return nil
	}
	var values []string
	for _, t := range all {
		values = append(values, c.one(t, key, pattern, want))
	}
	return values
}

// host checks a path relative to the file. os.Root confines it later.
func (c *checker) host(t text, key string) string {
	if t.line == 0 {
		return ""
	}
	if !hostPath.MatchString(t.value) || path.IsAbs(t.value) || !isLocal(t.value) {
		c.add(t.line, "%s: %q is not a path below the directory of the file, with slashes", key, whole.Shorten(t.value))
		return ""
	}
	return path.Clean(t.value)
}

func isLocal(p string) bool {
	clean := path.Clean(p)
	return clean != ".." && !strings.HasPrefix(clean, "../")
}

func (c *checker) lines(all []text) []string {
	var lines []string
	size := 0
	for _, t := range all {
		size += len(t.value)
		if strings.ContainsRune(t.value, 0) || strings.TrimSpace(t.value) == "" {
			c.add(t.line, "run: must be a line for the shell")
		}
		lines = append(lines, t.value)
	}
	if size > maxRun {
		c.add(all[0].line, "run has more than %d KiB; put a script into files and run it", maxRun>>10)
	}
	return lines
}

func (c *checker) env(all map[text]text) []Variable {
	var vars []Variable
	for _, name := range sorted(all) {
		value := all[name]
		switch {
		case !envName.MatchString(name.value):
			c.add(name.line, "env: %q is not the name of a variable", whole.Shorten(name.value))
		case len(value.value) > maxEnvText || strings.ContainsFunc(value.value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			c.add(value.line, "env: the value of %s must be one line of at most %d bytes", name.value, maxEnvText)
		}
		vars = append(vars, Variable{name.value, value.value})
	}
	if len(vars) > maxEnv {
		c.add(1, "env has more than %d variables", maxEnv)
	}
	return vars
}

func (c *checker) files(all map[text]text) []File {
	var files []File
	for _, from := range sorted(all) {
		to := all[from]
		clean := path.Clean(to.value)
		switch {
		case !imgPath.MatchString(to.value) || !path.IsAbs(to.value) || strings.Contains(to.value, ".."):
			c.add(to.line, "files: %q is not an absolute path of the image of plain characters", whole.Shorten(to.value))
		case slices.ContainsFunc(reserved, func(dir string) bool { return clean == dir || strings.HasPrefix(clean, dir+"/") }) || clean == "/":
			c.add(to.line, "files: jobs do not see %s of the image; choose another place, such as /opt/data", clean)
		}
		files = append(files, File{c.host(from, "files"), clean})
	}
	if len(files) > maxFiles {
		c.add(1, "files has more than %d entries; name directories", maxFiles)
	}
	return files
}

func sorted(all map[text]text) []text {
	return slices.SortedFunc(maps.Keys(all), func(a, b text) int { return strings.Compare(a.value, b.value) })
}
