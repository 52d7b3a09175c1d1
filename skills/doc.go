// Package skills knows what a skill is: a folder with a SKILL.md and a manifest.json, the tool's contract. It loads the skills that are
// built in and those of the operator's folder into a Catalog, says of broken ones what is wrong with them, and validates what goes into
// a skill and what comes out of it.
//
// The skills of this repository and the schema of manifests, _schema/manifest.schema.json, lie in this same folder and are embedded.
// The package does not run anything: skills/invoke does. It serves no HTTP and knows no Docker; what provider_http.go speaks is the
// client's side. What a manifest, a schema or a folder may ask for is bounded before anything recursive looks at it, and nothing that a
// skill names is followed or fetched.
package skills
