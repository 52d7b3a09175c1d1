package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/policy"
)

// execPage is what is known of one exec.
type execPage struct {
	rec       audit.Record
	token     string
	mayCancel bool
	events    []audit.Event
	policy    []policyField
	limits    []limit
	output    []stream
	artifacts fileList
	inputs    fileList
	skill     skillPart
	replay    replayPart
	proof     proofState
	before    string // the exec before in the project; empty: none
	after     string
	live      bool   // it has not ended, or its end completes a live page
	curl      string // gets the record from the API
}

// exec shows one exec.
func (c *Console) exec(v *visit) (ui.Page, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	if err := v.door.Reserve(4 * int64(rec.Size())); err != nil {
		return ui.Page{}, err
	}
	p := execPage{rec: rec, live: !rec.Status.Final() || v.query.Has("shown"), policy: policyOf(rec), limits: limitsOf(rec)}
	p.mayCancel = !rec.Status.Final() && slices.Contains(workers, v.caller.Role)
	names, err := c.cfg.Execs.Names(v.ctx(), v.caller, rec.RequestedBy)
	if err != nil {
		return ui.Page{}, err
	}
	p.token = tokenName(names, rec.RequestedBy)
	if p.events, err = c.cfg.Events.Events(v.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	removed, err := c.cfg.Execs.ArtifactsRemoved(v.ctx(), rec.ExecID)
	if err != nil {
		return ui.Page{}, err
	}
	if p.before, err = c.cfg.Execs.Neighbour(v.ctx(), v.caller, rec, false); err != nil {
		return ui.Page{}, err
	}
	if p.after, err = c.cfg.Execs.Neighbour(v.ctx(), v.caller, rec, true); err != nil {
		return ui.Page{}, err
	}
	if p.output, err = c.outputs(v, rec); err != nil {
		return ui.Page{}, err
	}
	if p.skill, err = c.skillOf(v, rec); err != nil {
		return ui.Page{}, err
	}
	if p.replay, err = c.replaysOf(v, rec); err != nil {
		return ui.Page{}, err
	}
	p.artifacts = c.artifactsPart(v.ctx(), rec, removed[rec.ExecID])
	p.inputs = c.inputsPart(v, rec)
	p.proof = c.proofOf(v, rec)
	p.curl = v.curl(inAPI(nil, "sandbox", "execs", rec.ExecID))
	page := ui.Page{
		Title: "Exec " + rec.ExecID, Crumbs: []ui.Crumb{{Label: "History", To: ui.Link("history")}}, Badge: execBadge(p),
		Actions: execActions(p), Body: execBody(p), Live: !rec.Status.Final(),
	}
	return page, nil
}

// cancel requests the end of an exec.
func (c *Console) cancel(v *visit) (ui.Address, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Address{}, err
	}
	if err := c.cfg.Runner.Cancel(v.ctx(), rec.ExecID); err != nil && !fault.Is(err, fault.ExecEnded) {
		return ui.Address{}, err
	}
	return ui.Link("execs", rec.ExecID), nil
}

// policyField is a field of the policy with the layer that set it.
type policyField struct {
	name, value, layer, ceiling, from, clamped string
}

// policyOf returns the policy on record by name; nil for an exec without one.
func policyOf(rec audit.Record) []policyField {
	var snapshot struct { // of any version: a field that this one does not know is shown, too
		Fields map[string]policy.Field `json:"fields"`
	}
	if len(rec.PolicySnapshot) == 0 || json.Unmarshal(rec.PolicySnapshot, &snapshot) != nil {
		return nil
	}
	var out []policyField
	for name, f := range snapshot.Fields {
		field := policyField{name: name, value: plain(f.Value), layer: f.Layer, ceiling: plain(f.Ceiling), from: f.CeilingFrom}
		if f.ClampedFrom != nil {
			field.clamped = plain(f.ClampedFrom)
		}
		out = append(out, field)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// plain returns a value of JSON for a reader.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		words := make([]string, len(v))
		for i, item := range v {
			words[i] = plain(item)
		}
		return strings.Join(words, ", ")
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
		return fmt.Sprint(v)
	}
	return fmt.Sprint(v)
}

// limit is a resource that an exec used, and what it could use.
type limit struct {
	name, used, most string
	share            float64 // of the limit, from 0 to 1; negative: not known
}

func limitsOf(rec audit.Record) []limit {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	if err != nil {
		return nil
	}
	values := snapshot.Values
	share := func(used, most int64) float64 {
		if most <= 0 {
			return -1
		}
		return min(float64(used)/float64(most), 1)
	}
	out := []limit{
		{"Time", ui.Duration(rec.DurationMS), ui.Duration(values.TimeoutMS), share(rec.DurationMS, values.TimeoutMS)},
		{"Standard output", ui.Bytes(rec.StdoutBytes), ui.Bytes(values.MaxStdoutBytes), share(rec.StdoutBytes, values.MaxStdoutBytes)},
		{"Standard error", ui.Bytes(rec.StderrBytes), ui.Bytes(values.MaxStderrBytes), share(rec.StderrBytes, values.MaxStderrBytes)},
		{"Artifacts", ui.Bytes(rec.ArtifactsBytes), ui.Bytes(values.MaxArtifactsBytesTotal), share(rec.ArtifactsBytes, values.MaxArtifactsBytesTotal)},
	}
	memory := limit{"Memory", "within the limit", ui.Bytes(values.MemoryMB << 20), -1}
	if rec.OOMEvents > 0 {
		memory.used, memory.share = fmt.Sprintf("exceeded %d times", rec.OOMEvents), 1
	}
	return append(out, memory)
}

// proofState is whether the transparency log has an exec.
type proofState struct {
	index   int64 // in the log, of the newest event
	pending bool  // the log will have it in a moment
	problem string
}

// proofPrice is the memory that one byte of a record takes in its proof; as api counts it.
const proofPrice = 16

func (c *Console) proofOf(v *visit, rec audit.Record) proofState {
	if err := v.door.Reserve(4 * int64(rec.Size())); err != nil { // at most four events
		return proofState{problem: reason(err)}
	}
	index, err := c.cfg.Proofs.Logged(v.ctx(), rec.ExecID)
	if err != nil {
		return proofState{problem: reason(err), pending: fault.Is(err, fault.NotLogged) && rec.Status.Final()}
	}
	return proofState{index: index}
}

// downloadProof sends the proof of an exec.
func (c *Console) downloadProof(v *visit, w http.ResponseWriter) error {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return err
	}
	if err := v.door.Reserve(proofPrice * int64(rec.Size())); err != nil {
		return err
	}
	proof, err := c.cfg.Proofs.Prove(v.ctx(), rec)
	if err == nil {
		err = c.recordDownload(v, rec, "proof", "")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", content.Attachment(rec.ExecID+".proof.json"))
	return content.NewPage("application/json", proof, problem.CSP).Serve(w, v.Request())
}

// recordDownload records that the caller gets a file of an exec. If it fails, nothing may be sent.
func (c *Console) recordDownload(v *visit, rec audit.Record, what, path string) error {
	if v.Request().Method == http.MethodHead {
		return nil
	}
	return c.cfg.Execs.RecordDownload(v.ctx(), v.caller, rec, what, path)
}

// reason returns the message of an error for a part of a page.
func reason(err error) string {
	var e *fault.Error
	if !errors.As(err, &e) {
		e = fault.From(err)
	}
	return e.Message
}
