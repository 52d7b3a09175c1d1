package report

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"

	"secbox/audit"
	"secbox/audit/admin"
)

// Builder makes a Report of facts. It is used by one goroutine.
type Builder struct {
	span    Span
	execs   map[string]Exec // by id, as they are at last
	events  map[eventGroup]*Events
	removed map[removedGroup]*Removed
	without []int64           // entries of the log without an event
	named   map[int64]bool    // entries that lost their event, as an event of retention says
	names   map[string]string // of actors and of new tokens, by id
	held    int               // bytes
}

type eventGroup struct {
	area Area
	kind admin.Kind
}

type removedGroup struct{ rule, part string }

// NewBuilder returns a Builder of a report about a span.
func NewBuilder(span Span) *Builder {
	span = Span{span.Since.UTC(), span.Until.UTC()}
	return &Builder{
		span: span, execs: map[string]Exec{}, events: map[eventGroup]*Events{}, removed: map[removedGroup]*Removed{},
		named: map[int64]bool{}, names: map[string]string{},
	}
}

// Size is the memory that the builder holds in bytes, about.
func (b *Builder) Size() int { return b.held }

// Knows reports whether the builder has an exec of the span.
func (b *Builder) Knows(execID string) bool { _, known := b.execs[execID]; return known }

// Exec adds the state of an exec, which replaces an earlier one. An exec that was not created in
// the span is ignored.
func (b *Builder) Exec(x Exec) {
	if !b.span.Has(x.CreatedAt) {
		return
	}
	x = x.cut()
	before, known := b.execs[x.ExecID]
	b.held += x.size()
	if known {
		b.held -= before.size()
	}
	b.execs[x.ExecID] = x
}

// Event adds an administrative event. It counts if it happened in the span; the entries that it
// says were removed are known in any case.
func (b *Builder) Event(e admin.Event) {
	data := removalOf(e)
	for _, entries := range data.Entries {
		for _, index := range entries {
			b.named[index] = true
			b.held += 16
		}
	}
	if e.Actor.Calls() {
		b.name(e.Actor.ID, e.Actor.Name)
	}
	if e.Kind == admin.TokenCreated {
		var created struct {
			Name string `json:"name"`
		}
		if json.Unmarshal([]byte(e.Data), &created) == nil {
			b.name(e.Subject, created.Name)
		}
	}
	if !b.span.Has(e.At) {
		return
	}
	if data.Part != "" {
		b.remove(short(data.rule, mostText), short(data.Part, mostText), data.names)
	}
	key := eventGroup{areaOf(e), admin.Kind(short(string(e.Kind), mostText))}
	group := b.events[key]
	if group == nil {
		group = &Events{Area: key.area, Kind: key.kind}
		b.events[key] = group
		b.held += 512
	}
	group.Count++
	group.Examples = newest(group.Examples, shortEvent(e), func(x, y Event) int {
		return cmp.Or(y.At.Compare(x.At), cmp.Compare(y.Seq, x.Seq))
	})
}

// name notes the name of a token or a person.
func (b *Builder) name(id, name string) {
	id, name = short(id, mostText), short(name, mostText)
	if name == "" {
		return
	}
	if _, known := b.names[id]; !known {
		b.held += len(id) + len(name) + 64
	}
	b.names[id] = name
}

// newest adds an example to those that order puts first.
func newest[T any](list []T, x T, order func(x, y T) int) []T {
	at, _ := slices.BinarySearchFunc(list, x, order)
	list = slices.Insert(list, at, x)
	return list[:min(len(list), mostExamples)]
}

func shortEvent(e admin.Event) Event {
	out := Event{
		Seq: e.Seq, At: e.At.UTC(), Subject: short(e.Subject, mostText),
		Actor: admin.Actor{
			Type: admin.ActorType(short(string(e.Actor.Type), mostText)), ID: short(e.Actor.ID, mostText),
			Name: short(e.Actor.Name, mostText),
		},
	}
	if len(e.Data) <= mostData {
		out.Data = []byte(e.Data)
	}
	return out
}

// remove adds what a rule removed.
func (b *Builder) remove(rule, part string, names []string) {
	key := removedGroup{rule, part}
	group := b.removed[key]
	if group == nil {
		group = &Removed{Rule: rule, Part: part, Named: []string{}}
		b.removed[key] = group
		b.held += 512
	}
	group.Count += int64(len(names))
	for _, name := range names {
		group.Named = newest(group.Named, short(name, mostText), strings.Compare)
	}
}

// removal is what an event says that retention removed.
type removal struct {
	Part    string             `json:"part"`
	Entries map[string][]int64 `json:"entries"`
	Rule    string             `json:"rule"` // of a workspace

	rule  string
	names []string
}

// removalOf returns the zero value for an event of another kind, and for data that cannot be read.
func removalOf(e admin.Event) removal {
	var r removal
	if e.Kind != admin.ExecsRemoved && e.Kind != admin.WorkspaceRemoved || json.Unmarshal([]byte(e.Data), &r) != nil {
		return removal{}
	}
	if e.Kind == admin.WorkspaceRemoved {
		return removal{Part: Workspaces, rule: r.Rule, names: []string{e.Subject}}
	}
	r.rule, r.names = e.Subject, slices.Collect(maps.Keys(r.Entries))
	return r
}

// Without adds an entry of the log whose event is not known, in the order of the log.
func (b *Builder) Without(index int64) {
	b.without = append(b.without, index)
	b.held += 8
}

// Explains reports whether an event of retention names an entry whose event is not known, and that
// no event before it has named.
func (b *Builder) Explains(e admin.Event) bool {
	for _, entries := range removalOf(e).Entries {
		for _, index := range entries {
			if _, lacks := slices.BinarySearch(b.without, index); lacks && !b.named[index] {
				return true
			}
		}
	}
	return false
}

// Report returns the report.
func (b *Builder) Report() Report { return b.report(Format) }

// report returns the report as bundles of a format have it.
func (b *Builder) report(format string) Report {
	r := Report{Span: b.span, ByStatus: map[string]int64{}, Refused: []Refused{}, Events: []Events{}, Removed: []Removed{}}
	who := map[Exec]*Who{}
	refused, messages := map[audit.Reason]*Refused{}, map[message]*alike{}
	for _, x := range b.execs {
		kind := cmp.Or(x.Kind, audit.KindExec)
		if kind == audit.KindExec {
			r.Execs++
		} else {
			r.Changes++
		}
		r.ByStatus[string(x.Status)]++
		key := Exec{
			Kind: kind, ProjectID: x.ProjectID, AgentID: x.AgentID, UserID: x.UserID, SkillID: x.SkillID, RequestedBy: x.RequestedBy,
		}
		if who[key] == nil {
			who[key] = &Who{x.RequestedBy, x.UserID, x.AgentID, x.ProjectID, x.SkillID, kind, 0, map[string]int64{}, Refusals{}}
		}
		who[key].Count++
		who[key].ByStatus[string(x.Status)]++
		if x.Status != audit.Rejected {
			continue
		}
		group := refused[x.ErrorReason]
		if group == nil {
			group = &Refused{Reason: x.ErrorReason}
			refused[x.ErrorReason] = group
		}
		group.Count++
		if format == formatV1 {
			group.example(x, 0)
			continue
		}
		for _, counted := range []*Refusals{&r.Refusals, &who[key].Refusals, &group.Refusals} {
			counted.add(x)
		}
		b.compare(messages, x)
	}
	for m, same := range messages {
		refused[m.reason].Messages++
		refused[m.reason].example(b.execs[same.newest], same.records)
	}
	r.Who, r.WhoOmitted = ranked(who)
	for _, group := range refused {
		r.Refused = append(r.Refused, *group)
	}
	slices.SortFunc(r.Refused, func(x, y Refused) int {
		return cmp.Or(cmp.Compare(y.Requests, x.Requests), cmp.Compare(y.Count, x.Count), cmp.Compare(x.Reason, y.Reason))
	})
	r.Refused = r.Refused[:min(len(r.Refused), mostGroups)]
	for _, group := range b.events {
		r.Events = append(r.Events, *group)
	}
	slices.SortFunc(r.Events, func(x, y Events) int {
		return cmp.Or(cmp.Compare(slices.Index(areas, x.Area), slices.Index(areas, y.Area)), cmp.Compare(x.Kind, y.Kind))
	})
	for _, group := range b.removed {
		r.Removed = append(r.Removed, *group)
	}
	slices.SortFunc(r.Removed, func(x, y Removed) int { return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Part, y.Part)) })
	r.Removed = r.Removed[:min(len(r.Removed), mostGroups)]
	r.Gaps = b.gaps()
	return r
}

// example adds an example to the newest.
func (r *Refused) example(x Exec, records int64) {
	r.Examples = newest(r.Examples, Refusal{x.ExecID, x.CreatedAt, x.RequestedBy, x.ProjectID, x.Detail, records}, func(x, y Refusal) int {
		return cmp.Or(y.At.Compare(x.At), cmp.Compare(y.ExecID, x.ExecID))
	})
}

// message is the hash of a refusal's message without the words that have a digit, such as ids and
// sizes, for a reason. A hash bounds the memory of a report with many messages.
type message struct {
	reason audit.Reason
	words  [sha256.Size]byte
}

func messageOf(x Exec) message {
	words := strings.FieldsFunc(x.Detail, func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return message{x.ErrorReason, sha256.Sum256([]byte(strings.Join(words, " ")))}
}

// alike are the records with one message.
type alike struct {
	newest  string // its id
	records int64
}

// compare adds a refused request to the records with its message.
func (b *Builder) compare(messages map[message]*alike, x Exec) {
	m := messageOf(x)
	same := messages[m]
	if same == nil {
		same = &alike{newest: x.ExecID}
		messages[m] = same
	}
	same.records++
	if newest := b.execs[same.newest]; cmp.Or(x.CreatedAt.Compare(newest.CreatedAt), cmp.Compare(x.ExecID, newest.ExecID)) > 0 {
		same.newest = x.ExecID
	}
}

// ranked returns the largest counts, and how many records the others have.
func ranked(who map[Exec]*Who) (list []Who, omitted int64) {
	list = make([]Who, 0, len(who))
	for _, w := range who {
		list = append(list, *w)
	}
	slices.SortFunc(list, func(x, y Who) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.RequestedBy, y.RequestedBy), cmp.Compare(x.UserID, y.UserID),
			cmp.Compare(x.AgentID, y.AgentID), cmp.Compare(x.ProjectID, y.ProjectID), cmp.Compare(x.SkillID, y.SkillID),
			cmp.Compare(x.Kind, y.Kind))
	})
	for _, w := range list[min(len(list), mostGroups):] {
		omitted += w.Count
	}
	return list[:min(len(list), mostGroups)], omitted
}

func (b *Builder) gaps() Gaps {
	g := Gaps{First: []int64{}}
	for _, index := range b.without {
		switch {
		case b.named[index]:
			g.Removed++
		default:
			if g.Unknown++; len(g.First) < mostExamples {
				g.First = append(g.First, index)
			}
		}
	}
	return g
}

// Area is what administrative events are about.
type Area string

// The areas, in the order of a report.
const (
	Tokens   Area = "tokens"   // and people
	Settings Area = "settings" // and the policy in them
	Skills   Area = "skills"
	Holds    Area = "holds"
	Log      Area = "log"
	Removal  Area = "removal"
	Reading  Area = "reading" // downloads and exports
	Sessions Area = "sessions"
	Nodes    Area = "nodes"
	Other    Area = "other" // a kind that this program does not know
)

var areas = []Area{Tokens, Settings, Skills, Holds, Log, Removal, Reading, Sessions, Nodes, Other}

// Changed reports whether events of the area change who may do what.
func (a Area) Changed() bool { return slices.Contains([]Area{Tokens, Settings, Skills, Holds, Log}, a) }

// areaOf returns the area of an event. The start of a node changes the settings if it says so.
func areaOf(e admin.Event) Area {
	switch e.Kind {
	case admin.TokenCreated, admin.TokenRevoked, admin.PersonBlocked, admin.PersonUnblocked, admin.WebhookSecret, admin.WebhookDefault,
		admin.ChangesRefused:
		return Tokens
	case admin.NodeStarted:
		var data struct {
			Changed []string `json:"settings_changed"`
		}
		if json.Unmarshal([]byte(e.Data), &data) == nil && len(data.Changed) > 0 {
			return Settings
		}
		return Nodes
	case admin.BackendChosen, admin.SchemaMigrated, admin.ImageAllowed, admin.ImageRemoved:
		return Settings
	case admin.BaselinePromoted, admin.BaselineDeleted, admin.SkillsRepair:
		return Skills
	case admin.HoldAdded, admin.HoldRemoved:
		return Holds
	case admin.LogKeyReplaced:
		return Log
	case admin.ExecsRemoved, admin.RetentionRun, admin.WorkspaceRemoved, admin.ProjectRemoved:
		return Removal
	case admin.Download, admin.Export, admin.DownloadsOmitted, admin.ExportsOmitted:
		return Reading
	case admin.SignedIn, admin.SignedOut, admin.SessionExtended, admin.PortLinked:
		return Sessions
	case admin.NodeEnded, admin.NodeLost, admin.NodeDrained, admin.NodeUndrained, admin.NodeForgotten:
		return Nodes
	}
	return Other
}
