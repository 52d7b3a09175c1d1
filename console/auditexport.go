package console

import (
	"net/http"

	"secbox/audit"
	"secbox/audit/export"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// exportQuery are the parameters of an export.
var exportQuery = func() (names []string) {
	for _, p := range append(audit.FilterParams(), export.Params()...) {
		names = append(names, p.Name)
	}
	return names
}()

// exportForm asks what to export. The address has it, so that it can be sent to another person.
func (c *Console) exportForm(req *request) (ui.Page, error) {
	_, err := c.exportOf(req)
	return withRefusal(ui.Page{Title: "Export", Body: view.Export(req.query)}, err)
}

func (c *Console) exportOf(req *request) (export.Query, error) {
	var bad fault.Fields
	q := export.ParseQuery(req.query.Get, c.cfg.Now(), &bad)
	return q, bad.Err()
}

// downloadExport sends the records. A form with invalid fields is shown again.
func (c *Console) downloadExport(req *request, w http.ResponseWriter) error {
	q, err := c.exportOf(req)
	if err != nil {
		return req.Redirect(http.StatusSeeOther, ui.Link("audit", "export").WithAll(req.query).String())
	}
	return req.door.Export(w, req.Request(), q)
}
