package view

import "image"

// MaxPreview is how many bytes of a text are shown.
const MaxPreview = 1 << 20

// Preview is how an artifact is shown.
type Preview struct {
	Kind  string       // for readers; empty: it is not shown
	Image string       // the media type of an image; empty for others
	Text  []byte       // of a text, with all characters visible; nil for others
	Cut   bool         // there is more text
	Size  image.Config // of an image, in pixels
	Why   string       // it is not shown
}
