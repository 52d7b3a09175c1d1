package skills

import (
	"embed"
	"io/fs"
)

//go:embed all:builtin
var builtinFolder embed.FS

// builtIn holds the skills of this repository and, in _schema, the schema of manifests.
var builtIn, _ = fs.Sub(builtinFolder, "builtin") // fails only for invalid names

//go:embed builtin/_schema/manifest.schema.json
var manifestSchema []byte
