package console

import (
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
)

// refusedQuery are the parameters of the refused requests, those of the history without status.
var refusedQuery = []string{"project_id", "user_id", "agent_id", "task_id", "skill_id", "error_reason", "requested_by", "since", "until", "cursor"}

// refused lists the requests that were refused and put on record, newest first.
func (c *Console) refused(req *request) (ui.Page, error) {
	page, err := c.readHistory(req, audit.Rejected)
	return withRefusal(ui.Page{Title: "Refused", Body: view.Refused(page)}, err)
}
