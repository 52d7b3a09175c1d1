package skills

import "embed"

// builtIn holds the skills of this repository. The pattern takes every folder with a dot in its name and no Go file: a new skill needs no
// line here, unless one of its words after the first begins with go as .go does. A test sees to it that no skill is left out.
//
//go:embed all:*.[^g]* all:*.g[^o]*
var builtIn embed.FS

//go:embed _schema/manifest.schema.json
var manifestSchema []byte

// ManifestSchema is the JSON Schema that every manifest.json is validated by.
func ManifestSchema() []byte { return append([]byte(nil), manifestSchema...) }
