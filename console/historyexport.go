package console

import (
	"net/http"
	"slices"

	"secbox/audit"
	"secbox/audit/export"
	"secbox/console/ui"
	"secbox/fault"
)

// historyExportQuery are the parameters of an export of the history: those that choose execs, and the format.
var historyExportQuery = append(slices.Clone(filters), "text", "format", "ocsf_version")

// exportHistory sends all execs that the history lists with the same filters, oldest first, as GET /audit/export does.
func (c *Console) exportHistory(req *request, w http.ResponseWriter) error {
	var bad fault.Fields
	q := export.ParseQuery(req.query.Get, c.cfg.Now(), &bad)
	text := searchText(req.query, &bad)
	if err := bad.Err(); err != nil {
		ofExport := []string{"format", "ocsf_version"}
		if slices.ContainsFunc(fault.From(err).Fields, func(f fault.Field) bool { return slices.Contains(ofExport, f.Field) }) {
			return err
		}
		list := ui.Link("history").WithAll(req.query) // has the form, and says what is wrong
		for _, name := range ofExport {
			list = list.With(name, "")
		}
		return req.Redirect(http.StatusSeeOther, list.String())
	}
	if text != "" {
		q.Asked["text"] = text
		q.Only = func(rec audit.Record) bool { return hasText(rec, text) }
	}
	return req.door.Export(w, req.Request(), q)
}
