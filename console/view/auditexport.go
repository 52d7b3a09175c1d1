package view

import (
	"net/url"
	"slices"
)

// ExportPage is the form for an export.
type ExportPage struct{ Query url.Values }

// moreFilters reports whether a filter is set, or wrong, that is shown only on demand.
func (p ExportPage) moreFilters() bool {
	return slices.ContainsFunc(rareFilters, func(name string) bool { return p.Query.Get(name) != "" })
}

// rareFilters are shown on demand.
var rareFilters = []string{"task_id", "conversation_id", "agent_id", "skill_id", "skill_digest", "backend", "runner", "replay_of", "trace_id", "requested_by", "error_reason", "exit_code_ne", "ocsf_version", "view"}
