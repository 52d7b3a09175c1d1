package view

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"secbox/audit/admin"
	"secbox/console/ui"
)

// EventsPage is a page of the administrative events.
type EventsPage struct {
	Pager
	Query url.Values // the filters
	Rows  []EventRow
	Named []ui.NavItem // what has the name by which the page filters, with the list by its id
	Curl  string       // gets the same from the API
}

// Page returns the page with its title.
func (p EventsPage) Page() ui.Page {
	return ui.Page{Title: "Administrative events", Body: eventsBody(p)}
}

// EventRow is an event with the page that its subject has.
type EventRow struct {
	admin.Event
	SubjectLink ui.Address
	Linked      bool // SubjectLink is an address
}

// detail is a member of an event's data.
type detail struct{ name, value string }

// Bounds of what a row shows of an event's data at once; the rest is shown on demand.
const (
	maxDetails     = 8
	maxDetailRunes = 100
)

// details returns the members of an event's data without removed execs; members of nested objects
// are named by their path. whole reports that nothing is left out.
func details(e admin.Event) (list []detail, whole bool) {
	all := flatten(nil, "", json.RawMessage(e.Data), 0)
	list = slices.DeleteFunc(slices.Clone(all), func(d detail) bool {
		return e.Kind == admin.ExecsRemoved && strings.HasPrefix(d.name,
			"entries.")
	})
	whole = len(list) == len(all) && len(list) <= maxDetails
	for i, d := range list {
		if i < maxDetails && utf8.RuneCountInString(d.value) > maxDetailRunes {
			whole = false
		}
	}
	return list[:min(len(list), maxDetails)], whole
}

// flatten appends the members of a JSON object; of an object in an object, too.
func flatten(list []detail, path string, value json.RawMessage, depth int) []detail {
	if inside := members(value); depth == 0 || depth == 1 && len(inside) > 0 {
		for _, m := range inside {
			list = flatten(list, strings.TrimPrefix(path+"."+m.name, "."), m.value, depth+1)
		}
		return list
	}
	var texts []string
	if json.Unmarshal(value, &texts) == nil && len(texts) > 0 {
		return append(list, detail{path, strings.Join(texts, ", ")})
	}
	return append(list, detail{path, text(value)})
}

// maxRemovedExecs is how many of the removedExecs a row shows.
const maxRemovedExecs = 20

// removedExecs returns the execs that an event of retention names.
func removedExecs(e admin.Event) []string {
	var data struct {
		Entries map[string]json.RawMessage `json:"entries"`
	}
	if e.Kind != admin.ExecsRemoved || json.Unmarshal([]byte(e.Data), &data) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(data.Entries))
}

// id is the event's id in addresses.
func (r EventRow) id() string { return strconv.FormatInt(r.Seq, 10) }

// short returns the end of a UUID, in which those that were made together differ, and the beginning
// of any other long text.
func short(id string) string {
	if _, err := uuid.Parse(id); err == nil && len(id) == 36 {
		return "…" + id[len(id)-12:]
	}
	return ui.Cut(id, 40)
}

// several returns a number of things: "1 exec", "2,000 execs".
func several[N int | int64](n N, thing string) string {
	if begin, y := strings.CutSuffix(thing, "y"); n != 1 && y {
		thing = begin + "ies"
	} else if n != 1 {
		thing += "s"
	}
	return ui.Count(int64(n)) + " " + thing
}
