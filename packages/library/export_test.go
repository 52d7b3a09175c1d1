package library

import "secbox/skills"

// Reads is how many files were read to learn their digests.
func (l *Library) Reads() int64 { return l.files.Hashed() }

// Unpinned is the registry of a View.
func Unpinned(r skills.Registry) skills.Registry { return unpinned{r} }
