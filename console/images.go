package console

import (
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/images/bom"
	"secbox/images/catalog"
)

// maxPackages is how many packages of an image are shown; the bill of materials has all.
const maxPackages = 1000

// images lists the own images.
func (c *Console) images(req *request) (ui.Page, error) {
	p := view.ImagesPage{Curl: req.curl(inAPI(nil, "sandbox", "images"))}
	var err error
	if p.Rows, err = c.cfg.Images.List(req.ctx()); err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Title: "Images", Body: view.Images(p)}, nil
}

// image shows an own image with what is installed in it.
func (c *Console) image(req *request) (ui.Page, error) {
	name := req.Param("name")
	if err := req.door.Reserve(2 * catalog.MaxBOM); err != nil {
		return ui.Page{}, err
	}
	i, err := c.cfg.Images.Get(req.ctx(), name)
	if err != nil {
		return ui.Page{}, err
	}
	p := view.ImagePage{Image: i, SeesEvents: req.may(auditors), Curl: req.curl(inAPI(nil, "sandbox", "images", name))}
	if p.Packages, err = bom.Components(i.BOM); err != nil {
		return ui.Page{}, err
	}
	if p.More = len(p.Packages) - maxPackages; p.More > 0 {
		p.Packages = p.Packages[:maxPackages]
	}
	return ui.Page{Title: name, Crumbs: []ui.Crumb{{Label: "Images", To: ui.Link("images")}}, Body: view.Image(p)}, nil
}
