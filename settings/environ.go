package settings

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"secbox/internal/suggest"
	"secbox/internal/whole"
)

// variables reads an environment as os.Environ returns it; of two entries with one name the last
// counts. Names have no case on Windows.
func variables(environ []string, goos string) map[string]string {
	out := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" { // "=C:=C:\dir" is how Windows remembers directories
			continue
		}
		if goos == "windows" {
			name = strings.ToUpper(name)
		}
		out[name] = value
	}
	return out
}

// emptyList is the variable of an empty list, since an empty variable counts as not set.
const emptyList = "[]"

// readEnv applies the variables. An empty one counts as not set: compose files pass a missing
// variable on as an empty one. Variables that begin with CORE_API_ and are no setting are reported,
// so that a typo is never silent.
func readEnv(s *Settings, rows []setting, vars map[string]string, p *problems) {
	var names []string
	known := map[string]bool{}
	for _, row := range rows {
		names = append(names, row.env...)
		for _, name := range row.env {
			known[name] = true
		}
		for _, name := range row.env {
			value := strings.TrimSpace(vars[name])
			if value == "" {
				continue
			}
			into := reflect.New(row.typ).Elem()
			if row.typ.Kind() == reflect.Map {
				readTable(s, row, name, value, p)
			} else if setText(into, value) {
				row.in(s).Set(into)
				p.from(row.key, name)
			} else {
				p.addf(name, "must be %s, not %q", want(row.typ), whole.Shorten(value))
			}
			break
		}
	}
	var unknown []string
	for name, value := range vars {
		if strings.HasPrefix(name, envPrefix) && !known[name] && !fromOrchestrator(name, value) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.addf(whole.Shorten(name), "there is no such setting; did you mean %s? Correct or unset it", suggest.Nearest(name, names))
	}
}

// linked are the variables that Kubernetes sets in every container for a service named core-api or
// core-api-something.
var linked = regexp.MustCompile(`^CORE_API_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// fromOrchestrator reports whether a variable is not meant for us although it looks so.
func fromOrchestrator(name, value string) bool {
	if linked.MatchString(name) {
		return true
	}
	scheme, _, ok := strings.Cut(value, "://")
	return ok && strings.HasSuffix(name, "_PORT") && (scheme == "tcp" || scheme == "udp" || scheme == "sctp")
}
