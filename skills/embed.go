package skills

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed all:builtin
var embeddedFolder embed.FS

var builtInFiles, _ = fs.Sub(embeddedFolder, "builtin") // fails only for invalid names

// builtIn holds the skills of this repository and, in _schema, the schema of manifests.
var builtIn fs.FS = laidOut{builtInFiles, sharedFiles}

//go:embed builtin/_schema/manifest.schema.json
var manifestSchema []byte

// sharedFiles are the files of several skills, in _shared, by their places in the skills: a
// container sees one skill's folder only.
var sharedFiles = map[string]string{
	"archive.pack/tree.py":  "_shared/tree.py",
	"git.diff/tree.py":      "_shared/tree.py",
	"json.query/tree.py":    "_shared/tree.py",
	"text.grep/tree.py":     "_shared/tree.py",
	"python.run/capture.py": "_shared/capture.py",
	"shell.run/capture.py":  "_shared/capture.py",
}

// WithManifestSchema adds the schema of manifests to a folder, as manifest.schema.json.
func WithManifestSchema(folder fs.FS) fs.FS {
	return laidOut{folder, map[string]string{"manifest.schema.json": "_schema/manifest.schema.json"}}
}

// laidOut is a file system with files of the folder builtin at further places.
type laidOut struct {
	fs.FS
	places map[string]string
}

// Open implements fs.FS.
func (l laidOut) Open(name string) (fs.File, error) {
	if from, ok := l.places[name]; ok {
		return builtInFiles.Open(from)
	}
	return l.FS.Open(name)
}

// ReadDir implements fs.ReadDirFS.
func (l laidOut) ReadDir(dir string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(l.FS, dir)
	for place, from := range l.places {
		if path.Dir(place) != dir || err != nil {
			continue
		}
		var fi fs.FileInfo
		if fi, err = fs.Stat(builtInFiles, from); err == nil {
			list = append(list, fs.FileInfoToDirEntry(fi))
		}
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// digestOnDisk is the digest of the skill's folder in this repository, where the shared files are
// missing.
func digestOnDisk(s *Skill) string {
	return Digest(slices.DeleteFunc(slices.Clone(s.Files), func(f File) bool {
		_, shared := sharedFiles[s.ID()+"/"+f.Path]
		return shared
	}))
}
