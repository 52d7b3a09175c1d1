package settings

import (
	"reflect"
	"strconv"
	"strings"

	"secbox/policy"
)

const envPrefix = "CORE_API_"

// setting is one line of the table that the tags of Settings are read into.
type setting struct {
	key     string   // dotted, as the file has it
	env     []string // the first one wins
	flag    string
	doc     string
	def     string // for people
	index   []int
	typ     reflect.Type
	envOnly bool
}

// in is the field of s that the setting is.
func (t setting) in(s *Settings) reflect.Value {
	return reflect.ValueOf(s).Elem().FieldByIndex(t.index)
}

// table walks the tags, in the order of the fields.
func table() []setting {
	defaults := Default()
	var rows []setting
	var walk func(typ reflect.Type, key, env string, index []int, ceiling bool)
	walk = func(typ reflect.Type, key, env string, index []int, ceiling bool) {
		for f := range typ.Fields() {
			if !f.IsExported() {
				continue
			}
			at := append(append([]int(nil), index...), f.Index...)
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if f.Type.Kind() == reflect.Struct {
				inner := key
				if name != "" {
					inner += name + "."
				}
				walk(f.Type, inner, env+f.Tag.Get("envPrefix"), at, ceiling || f.Tag.Get("ceiling") == "true")
				continue
			}
			row := setting{
				key: key + name, env: []string{env + f.Tag.Get("env")}, flag: f.Tag.Get("flag"),
				doc: f.Tag.Get("doc"), def: f.Tag.Get("default"), index: at, typ: f.Type, envOnly: f.Tag.Get("source") == "env",
			}
			if also := f.Tag.Get("also"); also != "" {
				row.env = append(row.env, also)
			}
			if ceiling {
				row.doc = "Ceiling: " + row.doc
			}
			if row.def == "" {
				row.def = show(row.in(&defaults))
			}
			rows = append(rows, row)
		}
	}
	walk(reflect.TypeFor[Settings](), "", envPrefix, nil, false)
	policyDefaults(rows)
	return rows
}

// policyDefaults fills in what package policy decides.
func policyDefaults(rows []setting) {
	values, ceilings := reflect.ValueOf(policy.Defaults()), reflect.ValueOf(policy.DefaultCeilings())
	for i := range rows {
		for prefix, from := range map[string]reflect.Value{"sandbox.policy.": values, "sandbox.policy_ceiling.": ceilings} {
			name, ok := strings.CutPrefix(rows[i].key, prefix)
			if !ok {
				continue
			}
			for f := range from.Type().Fields() {
				if public, _, _ := strings.Cut(f.Tag.Get("json"), ","); public == name {
					rows[i].def = show(from.FieldByIndex(f.Index))
				}
			}
		}
	}
}

// show writes a value as the environment would have it.
func show(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return show(v.Elem())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = show(v.Index(i))
		}
		return strings.Join(parts, ",")
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	default:
		return v.String()
	}
}

// want says in words what a value of the type looks like.
func want(typ reflect.Type) string {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	default:
		return "text"
	}
}

// Description is what there is to know about one setting.
type Description struct {
	Key     string // in the file, dotted or nested; empty when the file may not hold it
	Env     string
	Flag    string // with its dashes, empty when there is none
	Default string
	Doc     string // one or two sentences
}

// Describe lists every setting, in the order in which the documentation shows them.
func Describe() []Description {
	rows := table()
	out := make([]Description, len(rows))
	for i, row := range rows {
		out[i] = Description{Key: row.key, Env: strings.Join(row.env, ", "), Default: row.def, Doc: row.doc}
		if row.envOnly {
			out[i].Key = ""
		}
		if row.flag != "" {
			out[i].Flag = "--" + row.flag
		}
	}
	return out
}
