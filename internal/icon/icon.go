// Package icon has the icon of the product for browsers. It must not know the pages that show it.
package icon

import _ "embed"

// SVG is the icon.
//
//go:embed icon.svg
var SVG []byte
