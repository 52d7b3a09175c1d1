package library

// Reads is how many files were read to learn their digests.
func (l *Library) Reads() int64 { return l.files.Hashed() }
