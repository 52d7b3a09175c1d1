package view

import (
	"encoding/json"
	"strconv"

	"secbox/audit"
	"secbox/policy"
)

// refusals are the reasons of records with the status rejected.
var refusals = []string{string(audit.PolicyDenied), string(audit.Forbidden), string(audit.PathRefused), string(audit.InputRefused), string(audit.RefusalsOmitted)}

// Violation is a field of the policy for which a request was refused.
type Violation struct {
	policy.Denied
	Ceiling, From string // of the record's policy; empty: it has none
}

// violations returns the fields that policy refused; nil if the refusal has another reason.
func violations(rec audit.Record) []Violation {
	if rec.ErrorReason != audit.PolicyDenied {
		return nil
	}
	var snapshot struct { // of any version
		Fields map[string]policy.Field `json:"fields"`
	}
	if json.Unmarshal(rec.PolicySnapshot, &snapshot) != nil {
		snapshot.Fields = nil
	}
	var out []Violation
	for _, d := range policy.ParseDenied(rec.Detail) {
		if plain, err := strconv.Unquote(d.Asked); err == nil { // as the ceiling is shown
			d.Asked = plain
		}
		f := snapshot.Fields[d.Field]
		out = append(out, Violation{Denied: d, Ceiling: plain(f.Ceiling), From: f.CeilingFrom})
	}
	return out
}

// ceilingText is the ceiling with the layer that set it.
func (v Violation) ceilingText() string {
	if v.Ceiling == "" || v.From == "" {
		return v.Ceiling
	}
	return v.Ceiling + " (" + v.From + ")"
}
