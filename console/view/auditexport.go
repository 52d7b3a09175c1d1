package view

import (
	"net/url"
	"slices"
)

// hasRareFilter reports whether a filter has a value that is shown only on demand.
func hasRareFilter(query url.Values) bool {
	return slices.ContainsFunc(rareFilters, query.Has)
}

// rareFilters are shown on demand.
var rareFilters = []string{
	"task_id", "conversation_id", "agent_id", "skill_id", "skill_digest", "backend", "runner", "replay_of",
	"trace_id", "session_id", "requested_by", "error_reason", "exit_code_ne", "network", "ocsf_version", "view",
}
