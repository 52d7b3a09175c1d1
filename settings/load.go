package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"secbox/fault"
)

// Load reads the file (none when empty), then the environment (as os.Environ gives it), then the flags, fills in the directories
// that depend on the user, and checks everything. Beside the file it only looks at where the directories lead. All that is wrong
// comes back at once, in one fault.InvalidSettings whose fields are keys of the file or names of variables.
func Load(file string, environ []string, o Overrides) (Settings, error) {
	s, rows := Default(), table()
	var p problems
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return Settings{}, fault.Wrap(fault.InvalidSettings, err, "the settings file %s cannot be read (%s); correct the path or leave out --config", file, reasonOf(err))
		}
		readFile(&s, rows, filepath.Base(file), data, &p)
		if s.origin.file, err = filepath.Abs(file); err != nil {
			s.origin.file = file
		}
	}
	urlInFile := s.DatabaseURL
	vars := variables(environ, runtime.GOOS)
	readEnv(&s, rows, vars, &p)
	readFlags(&s, rows, o, &p)
	s.origin.urlInFile = s.DatabaseURL == urlInFile
	fillDirs(&s, home{goos: runtime.GOOS, root: os.Geteuid() == 0, env: vars})
	for _, f := range s.check() {
		p.add(p.traced(f))
	}
	if err := p.err(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// reasonOf is the part of a file error that may be shown.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, os.ErrPermission):
		return "no permission"
	}
	return fault.Reason(err)
}

// readFlags applies what was given on the command line.
func readFlags(s *Settings, rows []setting, o Overrides, p *problems) {
	given := map[string]string{}
	v := reflect.ValueOf(o)
	for f := range v.Type().Fields() {
		given[f.Tag.Get("flag")] = v.FieldByIndex(f.Index).String()
	}
	for _, row := range rows {
		value := given[row.flag]
		if row.flag == "" || value == "" {
			continue
		}
		if row.flag == "state-dir" || row.flag == "workspace-root" || row.flag == "skills-dir" {
			abs, err := filepath.Abs(value)
			if err != nil {
				p.addf("--"+row.flag, "%q is no directory that can be made absolute; give the whole path", value)
				continue
			}
			value = abs
		}
		row.in(s).SetString(value)
		p.from(row.key, "--"+row.flag)
	}
	if o.WorkspaceRoot != "" { // the other spellings, from the file or the environment, would name another directory
		s.Sandbox.WorkspaceRootWin, s.Sandbox.WorkspaceRootWSL = "", ""
	}
}

// problems are all that is wrong, collected so that they can be mended at once.
type problems struct {
	fields  []fault.Field
	origins map[string]string // key to what set it
}

// from remembers what set a key, so that a value found wrong later can be traced.
func (p *problems) from(key, origin string) {
	if p.origins == nil {
		p.origins = map[string]string{}
	}
	p.origins[key] = origin
}

// traced adds what set the key, if anything did.
func (p *problems) traced(f fault.Field) fault.Field {
	key, _, _ := strings.Cut(f.Field, "[")
	if origin := p.origins[key]; origin != "" {
		f.Reason += " (set by " + origin + ")"
	}
	return f
}

func (p *problems) add(f ...fault.Field) { p.fields = append(p.fields, f...) }

func (p *problems) addf(field, format string, args ...any) {
	p.add(fault.Field{Field: field, Reason: fmt.Sprintf(format, args...)})
}

func (p *problems) err() error {
	if len(p.fields) == 0 {
		return nil
	}
	lines := make([]string, len(p.fields))
	for i, f := range p.fields {
		lines[i] = f.Field + ": " + f.Reason
	}
	message := lines[0]
	if len(lines) > 1 {
		message = fmt.Sprintf("%d settings are wrong:\n  %s", len(lines), strings.Join(lines, "\n  "))
	}
	return &fault.Error{Code: fault.InvalidSettings, Message: message, Fields: p.fields}
}
