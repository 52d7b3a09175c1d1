package settings

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"secbox/policy"
)

const envPrefix = "CORE_API_"

// setting is one row of the table that the tags of Settings are read into.
type setting struct {
	key     string   // dotted, as in the file
	env     []string // the first one wins
	flag    string
	doc     string
	def     string // for people
	index   []int
	typ     reflect.Type
	envOnly bool
}

// in is the setting's field of s.
func (t setting) in(s *Settings) reflect.Value {
	return reflect.ValueOf(s).Elem().FieldByIndex(t.index)
}

const (
	policyPrefix  = "sandbox.policy."
	ceilingPrefix = "sandbox.policy_ceiling."
)

// table reads the tags, in the order of the fields. A variable is named after its key. Package
// policy documents its own fields.
func table() []setting {
	defaults := Default()
	fields := map[string]policy.Description{}
	for _, d := range policy.Describe() {
		fields[d.Name] = d
	}
	var rows []setting
	for _, f := range leaves(reflect.TypeFor[Settings](), "", nil) {
		row := setting{
			key: f.key, env: []string{envPrefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))}, flag: f.Tag.Get("flag"),
			doc: f.Tag.Get("doc"), def: f.Tag.Get("default"), index: f.Index, typ: f.Type, envOnly: f.Tag.Get("source") == "env",
		}
		if also := f.Tag.Get("also"); also != "" {
			row.env = append(row.env, also)
		}
		if row.def == "" {
			row.def = show(row.in(&defaults))
		}
		if name, ok := strings.CutPrefix(f.key, policyPrefix); ok {
			row.doc, row.def = fields[name].Doc, show(reflect.ValueOf(fields[name].Default))
		}
		if name, ok := strings.CutPrefix(f.key, ceilingPrefix); ok {
			row.doc, row.def = "Ceiling: "+fields[name].Doc, show(reflect.ValueOf(fields[name].Ceiling))
		}
		rows = append(rows, row)
	}
	return rows
}

// leaf is a field that is no struct. Its index begins at Settings.
type leaf struct {
	reflect.StructField
	key string
}

// leaves are the exported fields of a struct and of the structs in it. A key is named by the tag
// yaml or, in package policy, json.
func leaves(typ reflect.Type, prefix string, index []int) []leaf {
	var all []leaf
	for f := range typ.Fields() {
		if !f.IsExported() {
			continue
		}
		f.Index = append(slices.Clone(index), f.Index...)
		name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("yaml"), f.Tag.Get("json")), ",")
		switch {
		case name == "-":
		case f.Type.Kind() != reflect.Struct:
			all = append(all, leaf{f, prefix + name})
		case f.Anonymous:
			all = append(all, leaves(f.Type, prefix, f.Index)...)
		default:
			all = append(all, leaves(f.Type, prefix+name+".", f.Index)...)
		}
	}
	return all
}

// show writes a value as a variable has it.
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
	case reflect.Map:
		text, _ := json.Marshal(v.Interface()) // text, lists and numbers always have a JSON form
		return string(text)
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

// setText sets v from a variable or a flag; false when the text is no value of its type. The items
// of a list are separated by commas.
func setText(v reflect.Value, text string) bool {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	var err error
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		v.SetFloat(f)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case reflect.Slice:
		list := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" && text != emptyList {
				list = append(list, item)
			}
		}
		v.Set(reflect.ValueOf(list))
	default:
		v.SetString(text)
	}
	return err == nil
}

// want describes the values of a type.
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
	case reflect.Map:
		return "a section"
	default:
		return "text"
	}
}

// Description is the documentation of one setting.
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
