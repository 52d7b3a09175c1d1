package skills

import (
	"encoding/json"
	"io/fs"

	"secbox/skills/schema"
)

// Where a skill comes from.
const (
	BuiltIn   = "built-in"   // embedded in the binary
	SkillsDir = "skills_dir" // the operator's folder, the setting sandbox.skills_dir
)

// Skill is one that can be invoked. It does not change: when its folder does, the catalog holds another one.
type Skill struct {
	Manifest Manifest
	Raw      json.RawMessage // manifest.json as it was read
	Readme   string          // SKILL.md
	Source   string
	Digest   string // of all files: what ran, in records and as the folder's name in a container; lower-case hex of a SHA-256
	Files    []File // by path

	fsys            fs.FS // the folder
	inputs, outputs *schema.Schema
}

// File is one file of a skill's folder.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
	// Executable says that the content begins with #! or is an ELF binary, whatever the file system says of it.
	Executable bool `json:"executable,omitempty"`
}

// ID is the skill's id.
func (s *Skill) ID() string { return s.Manifest.ID }

// FS is the skill's folder; Files says what belongs to the skill. What is read from it may have changed since Digest was computed; whoever copies it checks.
func (s *Skill) FS() fs.FS { return s.fsys }

// Problem is one thing that is wrong with a skill.
type Problem struct {
	File    string `json:"file"`    // below the skill's folder
	Pointer string `json:"pointer"` // JSON pointer into the file; empty: the file as a whole
	Reason  string `json:"reason"`
}

// Broken is a folder that is meant to be a skill and cannot be used. It hides only itself.
type Broken struct {
	Folder   string    `json:"folder"` // its name below the source
	Source   string    `json:"source"`
	Problems []Problem `json:"problems"` // never empty
}
