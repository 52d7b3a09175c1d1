package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"secbox/fault"
)

// Load reads the file (none when empty), then the environment (in the form of os.Environ), then the
// flags, sets the directories that depend on the user, and checks everything. Beside the file it
// only resolves the links of directories. All errors come back in one fault.InvalidSettings whose
// fields are keys of the file or names of variables.
func Load(file string, environ []string, o Overrides) (Settings, error) {
	s, rows := Default(), table()
	var p problems
	if file != "" {
		data, err := readBounded(file)
		if err != nil {
			return Settings{}, fault.Wrap(fault.InvalidSettings, err,
				"cannot read the settings file %s (%s); correct the path or leave out --config", file, reasonOf(err))
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

// maxFile is the size of the largest settings file in bytes.
const maxFile = 1 << 20

// readBounded reads a settings file, which may be a pipe.
func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("has more than %d bytes", maxFile)
	}
	return data, err
}

// reasonOf describes a file error without the path.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, os.ErrPermission):
		return "no permission"
	}
	return fault.Reason(err)
}

// readFlags applies the flags.
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
				p.addf("--"+row.flag, "cannot make %q absolute; give the whole path", value)
				continue
			}
			value = abs
		}
		row.in(s).SetString(value)
		p.from(row.key, "--"+row.flag)
	}
	if o.WorkspaceRoot != "" { // the other spellings would name another directory
		s.Sandbox.WorkspaceRootWin, s.Sandbox.WorkspaceRootWSL = "", ""
	}
}

// problems collects all errors, so that they can be corrected together.
type problems struct {
	fields  []fault.Field
	origins map[string]string // source by key
}

// from stores the source of a key's value, for errors that are found later.
func (p *problems) from(key, origin string) {
	if p.origins == nil {
		p.origins = map[string]string{}
	}
	p.origins[key] = origin
}

// traced adds the source of the value, if there is one.
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
