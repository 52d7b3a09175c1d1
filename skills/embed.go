package skills

import "embed"

// builtIn holds the skills of this repository. The pattern matches every folder with a dot in its name and no Go file: a new skill needs no
// line here, unless one of its words after the first begins with "go". A test fails if a skill is missing.
//
//go:embed all:*.[^g]* all:*.g[^o]*
var builtIn embed.FS

//go:embed _schema/manifest.schema.json
var manifestSchema []byte
