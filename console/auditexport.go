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
func (c *Console) exportForm(v *visit) (ui.Page, error) {
	_, err := c.exportOf(v)
	return unlessRefused(ui.Page{Title: "Export", Body: view.Export(view.ExportPage{Query: v.query})}, err)
}

func (c *Console) exportOf(v *visit) (export.Query, error) {
	var bad fault.Fields
	q := export.ParseQuery(v.query.Get, c.cfg.Now(), &bad)
	return q, bad.Err()
}

// downloadExport sends the records. A form with wrong fields is shown again.
func (c *Console) downloadExport(v *visit, w http.ResponseWriter) error {
	q, err := c.exportOf(v)
	if err != nil {
		return v.Redirect(http.StatusSeeOther, ui.Link("audit", "export").WithAll(v.query).String())
	}
	return v.door.Export(w, v.Request(), q)
}
