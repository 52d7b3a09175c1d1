package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// addJSON adds an entry to JSON, which may have comments and commas at the end of lists, as several
// hosts allow.
func (h Host) addJSON(config []byte, e Entry) ([]byte, error) {
	config = bytes.TrimPrefix(config, []byte("\ufeff")) // of editors on Windows
	if len(bytes.TrimSpace(config)) == 0 {
		config = []byte("{}\n")
	}
	if depth(config) > maxDepth {
		return nil, fmt.Errorf("it is not the configuration of a host: it has objects or lists in more than %d others", maxDepth)
	}
	root, err := hujson.Parse(config)
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	in := object{value: &root, name: "the file", unit: "  ", depth: 1}
	if err := in.check(); err != nil {
		return nil, err
	}
	if members := in.members(); len(members) > 0 {
		before := members[0].Name.BeforeExtra
		indent := before[bytes.LastIndexByte(before, '\n')+1:]
		if len(indent) > 0 && len(indent) < len(before) && len(bytes.TrimSpace(indent)) == 0 {
			in.unit = string(indent)
		}
	}
	servers, err := in.object(h.key)
	if err != nil {
		return nil, err
	}
	server, err := servers.object(e.Name)
	if err != nil {
		return nil, err
	}
	if h.typed {
		server.set("type", `"stdio"`)
	}
	server.set("command", quote(e.Command))
	server.set("args", quoteAll(e.Args))
	if e.Token == "" && server.find("env") == nil {
		return root.Pack(), nil
	}
	env, err := server.object("env")
	if err != nil {
		return nil, err
	}
	if e.Token != "" {
		env.set(e.TokenVariable, quote(e.Token))
	} else {
		all := env.value.Value.(*hujson.Object)
		all.Members = slices.DeleteFunc(all.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == e.TokenVariable })
	}
	return root.Pack(), nil
}

// maxDepth is far more than configurations have; the parser calls itself for each level.
const maxDepth = 10_000

// depth returns how many objects and lists are around a value, at most. Brackets in comments count.
func depth(config []byte) (most int) {
	now, inString := 0, false
	for i := 0; i < len(config); i++ {
		switch c := config[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case inString:
		case c == '{' || c == '[':
			now++
			most = max(most, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// quote returns a text as JSON.
func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // there is no such text
	}
	return string(quoted)
}

func quoteAll(texts []string) string {
	var quoted []string
	for _, t := range texts {
		quoted = append(quoted, quote(t))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// object is a JSON object in a file, with all spaces and comments around its members.
type object struct {
	value *hujson.Value
	name  string
	unit  string // the indentation of one level
	depth int    // of the members
}

func (o object) check() error {
	if _, ok := o.value.Value.(*hujson.Object); !ok {
		return fmt.Errorf("%s is not a JSON object", o.name)
	}
	return nil
}

func (o object) members() []hujson.ObjectMember { return o.value.Value.(*hujson.Object).Members }

func nameOf(m hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

// find returns the value of a member, or nil. Of several with the name, hosts take the last.
func (o object) find(name string) *hujson.Value {
	members := o.members()
	for i := range slices.Backward(members) {
		if nameOf(members[i]) == name {
			return &members[i].Value
		}
	}
	return nil
}

// object returns a member that is an object itself. A missing one is added.
func (o object) object(name string) (object, error) {
	if o.find(name) == nil {
		o.set(name, "{}")
	}
	inner := object{value: o.find(name), name: name, unit: o.unit, depth: o.depth + 1}
	return inner, inner.check()
}

// set sets a member to a JSON value. A new one is the last, on a line of its own unless the others
// share one.
func (o object) set(name, to string) {
	value, err := hujson.Parse([]byte(to))
	if err != nil {
		panic(err) // of this program, not of the user
	}
	if found := o.find(name); found != nil {
		found.Value = value.Value
		return
	}
	all := o.value.Value.(*hujson.Object)
	line := "\n" + strings.Repeat(o.unit, o.depth)
	end := "\n" + strings.Repeat(o.unit, o.depth-1)
	value.BeforeExtra = hujson.Extra(" ")
	if n := len(all.Members); n > 0 {
		if !bytes.Contains(all.Members[0].Name.BeforeExtra, []byte("\n")) {
			line, end = " ", string(all.AfterExtra)
		}
		if all.Members[n-1].Value.AfterExtra != nil { // a comma at the end
			value.AfterExtra = hujson.Extra{}
		}
	}
	// A comment behind the last member stays there: the comma goes before it.
	before := hujson.Extra(string(bytes.TrimRight(all.AfterExtra, " \t\r\n")) + line)
	all.Members = append(all.Members, hujson.ObjectMember{
		Name: hujson.Value{BeforeExtra: before, Value: hujson.String(name)}, Value: value,
	})
	all.AfterExtra = hujson.Extra(end)
}
