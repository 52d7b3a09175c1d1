package console

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner"
)

const eventRows = 50 // of a page

// eventsPage is a page of the administrative events.
type eventsPage struct {
	query url.Values // the filters
	rows  []eventRow
	first bool
	here  ui.Address // without the cursor
	next  ui.Address
	more  bool
	curl  string // gets the same from the API
}

func (p eventsPage) page() ui.Page {
	return ui.Page{Title: "Administrative events", Body: eventsBody(p)}
}

// eventRow is an event with the page that its subject has.
type eventRow struct {
	admin.Event
	subject ui.Address
	linked  bool // subject is an address
}

// events lists administrative events, newest first.
func (c *Console) events(v *visit) (ui.Page, error) {
	var bad fault.Fields
	q, err := visible.ParseEvents(v.query.Get, c.cfg.Now(), &bad)
	p := eventsPage{query: v.query, first: q.After == nil, here: v.here().With("cursor", "")}
	if err != nil {
		return unlessRefused(p.page(), err)
	}
	events, err := c.cfg.AdminEvents.List(v.ctx(), q.Filter, q.After, eventRows)
	if err != nil {
		return ui.Page{}, err
	}
	if p.rows, err = eventRowsOf(v, events); err != nil {
		return ui.Page{}, err
	}
	if n := len(events); n == eventRows {
		p.next, p.more = p.here.With("cursor", q.Cursor(events[n-1])), true
	}
	asked := maps.Clone(v.query)
	asked.Set("limit", strconv.Itoa(eventRows))
	p.curl = v.curl(inAPI(asked, "audit", "events"))
	return p.page(), nil
}

// eventRowsOf counts the memory of events, and finds the pages of their subjects.
func eventRowsOf(v *visit, events []admin.Event) ([]eventRow, error) {
	rows, size := make([]eventRow, len(events)), 0
	for i, e := range events {
		rows[i] = eventRow{Event: e}
		rows[i].subject, rows[i].linked = subjectPage(e, v.caller.Role)
		size += e.Size()
	}
	return rows, v.door.Reserve(2 * int64(size))
}

// subjectPage returns the page of what an event is about; false if there is none.
func subjectPage(e admin.Event, role tokens.Role) (ui.Address, bool) {
	switch e.Kind {
	case admin.TokenCreated, admin.TokenRevoked, admin.DownloadsOmitted, admin.ExportsOmitted, admin.ChangesRefused, admin.SignedIn, admin.SignedOut,
		admin.PersonBlocked, admin.PersonUnblocked, admin.WebhookSecret, admin.WebhookDefault:
		return callerPage(e.Subject, role), e.Subject != ""
	case admin.Download:
		return ui.Link("execs", e.Subject), e.Subject != ""
	case admin.NodeStarted, admin.NodeEnded, admin.NodeLost, admin.NodeDrained, admin.NodeUndrained, admin.NodeForgotten:
		return ui.Link("runners"), true
	case admin.BackendChosen:
		return ui.Link("runners").With("user_id", e.Subject), true
	case admin.ExecsRemoved, admin.RetentionRun:
		return ui.Link("audit", "retention"), true
	case admin.HoldAdded, admin.HoldRemoved, admin.BaselinePromoted, admin.BaselineDeleted:
		return ui.Link("audit", "events").With("subject", e.Subject), e.Subject != ""
	}
	return ui.Address{}, false
}

// callerPage returns the page of a token or, for others than admins and of a person, the execs.
func callerPage(id string, role tokens.Role) ui.Address {
	if role == tokens.Admin && id != runner.Tokenless && !strings.HasPrefix(id, admin.PersonPrefix) {
		return ui.Link("tokens", id)
	}
	return ui.Link("history").With("requested_by", id)
}

// detail is a member of an event's data.
type detail struct{ name, value string }

// Bounds of what a row shows of an event's data at once; the rest is shown on demand.
const (
	maxDetails     = 8
	maxDetailRunes = 100
)

// details returns the members of an event's data, those of objects in it by their path, without removed execs. whole reports that this is all of it.
func details(e admin.Event) (list []detail, whole bool) {
	all := flatten(nil, "", json.RawMessage(e.Data), 0)
	list = slices.DeleteFunc(slices.Clone(all), func(d detail) bool { return e.Kind == admin.ExecsRemoved && strings.HasPrefix(d.name, "entries.") })
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

// removedExecs returns the execs that an event of retention names, of which the page shows at most this many.
const maxRemovedExecs = 20

func removedExecs(e admin.Event) []string {
	var data struct {
		Entries map[string]json.RawMessage `json:"entries"`
	}
	if e.Kind != admin.ExecsRemoved || json.Unmarshal([]byte(e.Data), &data) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(data.Entries))
}

func eventKinds() []string {
	var names []string
	for _, k := range admin.Kinds() {
		names = append(names, string(k))
	}
	return names
}

// id is the event's id in addresses.
func (r eventRow) id() string { return strconv.FormatInt(r.Seq, 10) }

// short returns the end of a UUID, in which those that were made together differ, and the beginning of any other long text.
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
