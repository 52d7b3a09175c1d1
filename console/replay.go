package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"secbox/access/sessions"
	"secbox/api/gate"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/replay"
)

const (
	replayRows = 20  // of the list of replays
	pointRows  = 200 // of a comparison
	replayVars = 200 // variables that the form asks for

	namedPoints = 5 // of a kind, in the sentence about a comparison

	replayKey = "console-" // begins the Idempotency-Keys of forms
)

// replayPart is what the page of an exec has about replays.
type replayPart struct {
	rec     audit.Record
	may     bool   // the caller may run it again, and the record does not say that it cannot
	refusal string // what the record says to one who may
	vars    []string
	key     string // of the form, so that it runs once however often it is sent
	list    []audit.Record
	more    bool // than list
	points  []replay.Point
	cut     int           // points beyond pointRows
	verdict string        // of the comparison, in a sentence; empty: there is none
	first   *audit.Record // that this one replays; nil: it is no replay, or the first one cannot be read
	problem string        // why there is no comparison
}

// replaysOf reads what the page of an exec has about replays.
func (c *Console) replaysOf(v *visit, rec audit.Record) (replayPart, error) {
	p := replayPart{rec: rec}
	if slices.Contains(workers, v.caller.Role) && rec.Status.Final() {
		p.refusal = refusalOf(rec)
		p.may = p.refusal == ""
	}
	if p.may {
		p.vars, p.key = replay.Variables(rec), replayKey+sessions.Secret()
		p.vars = p.vars[:min(len(p.vars), replayVars)]
	}
	rows, next, err := c.cfg.Execs.List(v.ctx(), v.caller, audit.Filter{ReplayOf: rec.ExecID, Summary: true}, nil, replayRows)
	if err != nil {
		return p, err
	}
	p.list, p.more = rows, next != nil
	if rec.ReplayOf == "" || !rec.Status.Final() {
		return p, nil
	}
	first, err := c.cfg.Execs.Get(v.ctx(), v.caller, rec.ReplayOf)
	if err != nil {
		p.problem = reason(err)
		return p, nil
	}
	p.first = &first
	p.points = c.cfg.Replayer.Compare(v.ctx(), first, rec, v.door.Reserve)
	p.verdict = verdictOf(p.points)
	slices.SortStableFunc(p.points, func(a, b replay.Point) int { return cmp.Compare(rank(a), rank(b)) })
	if p.cut = len(p.points) - pointRows; p.cut > 0 {
		p.points = p.points[:pointRows]
	}
	return p, nil
}

// refusalOf says why an exec cannot run again; empty if its record does not say so.
func refusalOf(rec audit.Record) string {
	if err := replay.Check(rec); err != nil {
		return reason(err)
	}
	return ""
}

// verdictOf sums up a comparison in a sentence.
func verdictOf(points []replay.Point) string {
	if len(points) == 0 {
		return ""
	}
	same := 0
	names := map[replay.Equal][]string{}
	for _, p := range points {
		if p.Equal == replay.Yes {
			same++
		} else {
			names[p.Equal] = append(names[p.Equal], ui.Cut(pointName(p), 60))
		}
	}
	text := fmt.Sprintf("It came out the same in %d of %d points", same, len(points))
	for _, other := range []struct {
		what  replay.Equal
		label string
	}{{replay.No, "; different: "}, {replay.Unknown, "; not known: "}} {
		if list := names[other.what]; len(list) > 0 {
			text += other.label + strings.Join(list[:min(len(list), namedPoints)], ", ")
			if more := len(list) - namedPoints; more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
		}
	}
	return text + "."
}

// rank has the points that differ first.
func rank(p replay.Point) int {
	return slices.Index([]replay.Equal{replay.No, replay.Unknown, replay.Yes}, p.Equal)
}

// replay runs an exec again. It leads to the page of the new exec as soon as that has one, and holds its memory until it has ended.
func (c *Console) replay(v *visit) (ui.Address, error) {
	first, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Address{}, err
	}
	if err := gate.CheckReplay(v.ctx(), v.caller, first, c.cfg.Runner); err != nil {
		return ui.Address{}, err
	}
	key := v.form.Get("key")
	if secret, ok := strings.CutPrefix(key, replayKey); !ok || !isSecret(secret) {
		return ui.Address{}, fault.BadField("key", "is not that of the form; open the page of the exec again and use its form")
	}
	q := replay.Request{
		First: first, Stdin: []byte(strings.ReplaceAll(v.form.Get("stdin"), "\r\n", "\n")), RequestedBy: v.caller.ID, IdempotencyKey: key, Reserve: v.door.Reserve,
		OnOpen: func(execID string) { v.leadOn(ui.Link("execs", execID)) },
	}
	q.Env = map[string]string{}
	for i, name := range replay.Variables(first) {
		if value := v.form.Get(variableField(i)); value != "" {
			q.Env[name] = value
		}
	}
	res, err := c.cfg.Replayer.Replay(v.ctx(), q)
	if v.Response().Committed { // the page of the exec tells how it ended
		if err != nil {
			c.log.Warn("a replay that had begun failed", "first", first.ExecID, "error", err)
		}
		return ui.Address{}, nil
	}
	if err != nil {
		return ui.Address{}, err
	}
	return ui.Link("execs", res.Exec.Record.ExecID), nil
}

// variableField is the name of the field of a form for the n-th variable, whose own name may be any text.
func variableField(n int) string { return "env." + strconv.Itoa(n) }

// leadOn answers a form before its work is done. The browser does not wait for more on this connection.
func (v *visit) leadOn(to ui.Address) {
	h := v.Response().Header()
	h.Set("Connection", "close")
	h.Set("Content-Length", "0")
	h.Set("Location", to.String())
	v.Response().WriteHeader(http.StatusSeeOther)
	_ = http.NewResponseController(v.Response()).Flush() // fails only if the client is gone
}

// outcomeOf says in a few words how an exec ended.
func outcomeOf(rec audit.Record) string {
	if rec.ExitCode == nil {
		return ""
	}
	return "exit code " + strconv.Itoa(*rec.ExitCode)
}

// pointName is what a point of a comparison is about, for readers.
func pointName(p replay.Point) string {
	switch p.What {
	case "exit_code":
		return "exit code"
	case "stdout":
		return "standard output"
	case "stderr":
		return "standard error"
	case "stdin":
		return "standard input"
	case "work":
		return "other files in work/"
	case "other_inputs":
		return "other files in inputs/"
	}
	return p.What
}

// digestText reports whether a text is a digest, of which a reader compares the beginning only.
func digestText(s string) bool {
	s = strings.TrimPrefix(s, "sha256:")
	return (len(s) == 64 || len(s) == 32) && strings.Trim(s, "0123456789abcdef") == ""
}
