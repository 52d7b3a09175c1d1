package audit

import (
	"reflect"
	"strings"
)

// Column is a column of sandbox_execs. Its name is the JSON name of its field in Record, and the
// field's tag "row" has its uses.
type Column struct {
	Name  string
	Use   Use
	Index int // of the field in Record
}

// Use says how a column is written and read beside the insert, which sets all columns.
type Use uint8

// The uses, by their words in the tags.
const (
	OnStart Use = 1 << iota // start: Start sets it
	OnClose                 // close: Close sets it
	Clears                  // clear: Close only empties it
	Key                     // key: a text of bounded length, because it has an index
	Large                   // large: summaries leave it out
	Brief                   // brief: events after the first one do not repeat it if it is large, see Record.Brief
	Omitted                 // in the JSON tag: the JSON of an event leaves it out if it is empty

	// MayChange are the uses of the columns that events after the first one may change.
	MayChange = OnStart | OnClose
)

var uses = map[string]Use{
	"start": OnStart, "close": OnClose, "clear": Clears, "key": Key, "large": Large, "brief": Brief,
	"omitempty": Omitted, "omitzero": Omitted,
}

// Columns are all columns, in the order of the fields.
var Columns = func() (all []Column) {
	for f := range reflect.TypeFor[Record]().Fields() {
		if f.Tag.Get("row") == "-" {
			continue
		}
		words := strings.Split(f.Tag.Get("json"), ",")
		c := Column{Name: words[0], Index: f.Index[0]}
		if tag := f.Tag.Get("row"); tag != "" {
			words = append(words, strings.Split(tag, ",")...)
		}
		for _, word := range words[1:] {
			use, ok := uses[word]
			if !ok {
				panic("audit.Record: field " + f.Name + " has the tag " + word)
			}
			c.Use |= use
		}
		all = append(all, c)
	}
	return all
}()

var textType = reflect.TypeFor[*string]()

// In returns a pointer to the column's field in a record. All texts are *string.
func (c Column) In(r *Record) any {
	v := reflect.ValueOf(r).Elem().Field(c.Index)
	if v.Kind() == reflect.String {
		return v.Addr().Convert(textType).Interface()
	}
	return v.Addr().Interface()
}
