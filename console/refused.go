package console

import (
	"encoding/json"
	"strconv"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
)

// refusedQuery are the parameters of the refused requests, those of the history without status.
var refusedQuery = []string{"project_id", "user_id", "agent_id", "task_id", "skill_id", "error_reason", "requested_by", "since", "until", "cursor"}

// refusals are the reasons of records with the status rejected.
var refusals = []string{string(audit.PolicyDenied), string(audit.Forbidden), string(audit.PathRefused), string(audit.InputRefused), string(audit.RefusalsOmitted)}

// refused lists the requests that were refused and put on record, newest first.
func (c *Console) refused(v *visit) (ui.Page, error) {
	page, err := c.readHistory(v, audit.Rejected)
	return unlessRefused(ui.Page{Title: "Refused", Body: refusedBody(page)}, err)
}

// violation is a field of the policy for which a request was refused.
type violation struct {
	policy.Denied
	ceiling, from string // of the record's policy; empty: it has none
}

// violations returns the fields that policy refused; nil if the refusal has another reason.
func violations(rec audit.Record) []violation {
	if rec.ErrorReason != audit.PolicyDenied {
		return nil
	}
	var snapshot struct { // of any version
		Fields map[string]policy.Field `json:"fields"`
	}
	if json.Unmarshal(rec.PolicySnapshot, &snapshot) != nil {
		snapshot.Fields = nil
	}
	var out []violation
	for _, d := range policy.ParseDenied(rec.Detail) {
		if plain, err := strconv.Unquote(d.Asked); err == nil { // as the ceiling is shown
			d.Asked = plain
		}
		f := snapshot.Fields[d.Field]
		out = append(out, violation{Denied: d, ceiling: plain(f.Ceiling), from: f.CeilingFrom})
	}
	return out
}

// ceilingText is the ceiling with the layer that set it.
func (v violation) ceilingText() string {
	if v.ceiling == "" || v.from == "" {
		return v.ceiling
	}
	return v.ceiling + " (" + v.from + ")"
}
