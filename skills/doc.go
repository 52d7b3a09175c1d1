// Package skills defines skills: folders with a SKILL.md and a manifest.json, the contract of a
// tool. It loads the built-in skills and the skills of the operator's folder into a Catalog,
// reports broken ones, and validates the inputs and outputs of skills. SkillsProvider is a client
// for agent workers.
//
// The folder builtin holds the skills of this repository, in _shared the files that several of them
// have, and the schema of manifests, _schema/manifest.schema.json. All are embedded.
//
// Start with builtin/, then manifest.go, skill.go and catalog.go. Then read:
//
//   - schema: validates JSON by JSON Schema in bounded time and memory
//   - invoke: runs a skill as an exec
//   - scripts: tests the programs of the built-in skills
//
// Manifests, schemas and folders are bounded before anything recursive reads them, and nothing that
// a skill names is followed or fetched. The room serves no HTTP and must not know Docker or SQL;
// only invoke knows runner.
package skills
