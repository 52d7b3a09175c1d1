package view

import (
	"secbox/images/bom"
	"secbox/images/catalog"
)

// ImagesPage is the own images.
type ImagesPage struct {
	Rows []catalog.Image
	Curl string // gets the same from the API
}

// ImagePage is an own image.
type ImagePage struct {
	catalog.Image
	Packages   []bom.Package
	More       int // packages that are not listed
	SeesEvents bool
	Curl       string // gets the same from the API
}

// imageSources say where an image came from.
var imageSources = map[catalog.Source]string{catalog.Built: "built of a file", catalog.Imported: "imported", catalog.Pulled: "pulled"}
