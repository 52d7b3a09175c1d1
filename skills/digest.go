package skills

// Digest names a tree by its files, which are in the order of the bytes of their paths; see digest. Packages of skills go by the same
// name as skills of the catalog, except that their hidden files count too.
func Digest(files []File) string { return digest(files) }

// Executable reports whether a file that begins with these bytes, four or more unless it is shorter, can be started by itself.
func Executable(head []byte) bool { return startsItself(head) }
