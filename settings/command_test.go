package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestCommandReachesTheSameInstallation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	state, blank := abs("/srv/state"), abs("/srv/my state")
	setting := func(url string) string {
		if runtime.GOOS == "windows" {
			return "$env:DATABASE_URL='" + url + "'; "
		}
		return "DATABASE_URL=" + url + " "
	}
	plain := write("plain.yaml", "state_dir: "+state+"\n")
	withURL := write("with url.yaml", "database_url: postgres://u:hunter2@db/secbox\nstate_dir: "+state+"\n")
	const url = "postgres://u:hunter2@db/secbox?password=hunter3"
	for name, tc := range map[string]struct {
		file    string
		environ []string
		flags   Overrides
		want    string
	}{
		"flag":            {"", nil, Overrides{StateDir: state}, "core-api token list --state-dir " + state},
		"a blank in it":   {"", nil, Overrides{StateDir: blank}, "core-api token list --state-dir '" + blank + "'"},
		"variable":        {"", []string{"CORE_API_STATE_DIR=" + state}, Overrides{}, "core-api token list --state-dir " + state},
		"default":         {"", []string{"XDG_STATE_HOME=/srv", "HOME=/srv"}, Overrides{}, ""},
		"file":            {plain, nil, Overrides{}, "core-api token list --config " + plain + " --state-dir " + state},
		"URL in the file": {withURL, nil, Overrides{}, "core-api token list --config '" + withURL + "'"},
		"URL in a flag":   {"", nil, Overrides{StateDir: state, DatabaseURL: url}, setting("postgres://u:PASSWORD@db/secbox") + "core-api token list"},
		"URL in a variable": {
			"",
			[]string{"CORE_API_STATE_DIR=" + state, "DATABASE_URL=" + url},
			Overrides{},
			setting("postgres://u:PASSWORD@db/secbox") + "core-api token list",
		},
		"URL over the file": {
			withURL,
			[]string{"DATABASE_URL=postgres://v@db/other"},
			Overrides{},
			setting("postgres://v@db/other") + "core-api token list --config '" + withURL + "'",
		},
		"file without a URL": {
			plain,
			[]string{"DATABASE_URL=postgres://v@db/other"},
			Overrides{},
			setting("postgres://v@db/other") + "core-api token list --config " + plain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Load(tc.file, here(tc.environ...), tc.flags)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				tc.want = "core-api token list --state-dir " + s.StateDir
			}
			if got := s.Command("core-api", "token list"); got != tc.want || strings.Contains(got, "hunter") {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestEnviron: another process that is given the variables has the same settings, whichever one
// differs from its default.
func TestEnviron(t *testing.T) {
	t.Parallel()
	rows := table()
	for _, row := range rows {
		s := Default()
		switch field := row.in(&s); field.Kind() {
		case reflect.Slice:
			if field.Len() > 0 {
				field.Set(reflect.ValueOf([]string{}))
			} else {
				field.Set(reflect.ValueOf([]string{"one", "two"}))
			}
		case reflect.Map:
			if field.Type() == reflect.TypeFor[JobSecrets]() {
				field.Set(reflect.ValueOf(JobSecrets{"key": {File: "/key", Hosts: []string{"a.example.org"}}}))
			} else {
				field.Set(reflect.ValueOf(MCPServers{"*": {"files": {Command: "serve", Args: []string{"a b"}}}}))
			}
		case reflect.Bool:
			field.SetBool(!field.Bool())
		case reflect.Int, reflect.Int64:
			field.SetInt(field.Int() + 1)
		case reflect.Float64:
			field.SetFloat(0.25)
		case reflect.String:
			field.SetString("other")
		case reflect.Pointer:
			value := reflect.New(row.typ.Elem())
			if !setText(value.Elem(), "3") && !setText(value.Elem(), "true") {
				t.Fatalf("%s: %s", row.key, row.typ)
			}
			field.Set(value)
		default:
			t.Fatalf("%s: %s", row.key, row.typ)
		}
		environ := s.Environ()
		if len(environ) != 1 {
			t.Errorf("%s: %q", row.key, environ)
		}
		got := Default()
		var p problems
		readEnv(&got, rows, variables(environ, "linux"), &p)
		if err := p.err(); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s: %q is read as %v: %v", row.key, environ, row.in(&got), err)
		}
	}
}
