package builder

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"secbox/fault"
	"secbox/images/catalog"
)

// Bounds of a file of docker save.
const (
	maxManifest = 1 << 20
	maxEntries  = 100_000
)

var (
	ownTag = regexp.MustCompile(
		`^` + regexp.QuoteMeta(catalog.Repository("")) + `[a-z0-9]+(-[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	layerName = regexp.MustCompile(`^[0-9a-f]{64}/layer\.tar$`)
	layerLink = regexp.MustCompile(`^\.\./([0-9a-f]{64}/layer\.tar|blobs/sha256/[0-9a-f]{64})$`)
)

// copyImage copies a file of docker save, and returns the tag of its one image: tag unless that is
// empty. It writes no other tag, and none that is not an own image's: loading the copy would take
// the tag from the image that has it. Names in the copy lead where they say, so docker finds no
// tags that copyImage has not. name is the file's, for messages.
func copyImage(to io.Writer, from io.Reader, name, tag string) (string, error) {
	bad := func(why string) error {
		return fault.New(fault.InvalidArchive, "%s %s; import takes a file of `core-api image export`, or of `docker save` with one image that "+
			"is tagged %s", name, why, catalog.Repository("NAME:TAG"))
	}
	const noImage = "is no archive of an image"
	in, out, seen := tar.NewReader(from), tar.NewWriter(to), map[string]bool{} // true: a directory
	for n := 0; ; n++ {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || n > maxEntries {
			return "", bad(noImage)
		}
		entry := tar.Header{Name: path.Clean(header.Name), Typeflag: header.Typeflag, Size: header.Size, Mode: 0o644, Format: tar.FormatPAX}
		directory := header.Typeflag == tar.TypeDir
		was, again := seen[entry.Name]
		switch {
		case directory && entry.Name == ".":
			continue
		case !fs.ValidPath(entry.Name) || again && (!was || !directory):
			return "", bad("has two files at one place, or one out of the archive")
		case directory:
			entry.Mode = 0o755
		case header.Typeflag == tar.TypeSymlink && layerName.MatchString(entry.Name) && layerLink.MatchString(header.Linkname):
			entry.Linkname = header.Linkname // docker save has written a layer once
		case header.Typeflag != tar.TypeReg:
			return "", bad("has a link or a special file")
		}
		seen[entry.Name] = directory
		content := io.Reader(in)
		switch entry.Name {
		case "manifest.json", "index.json", "repositories":
			text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
			if err != nil || len(text) > maxManifest {
				return "", bad(noImage)
			}
			tags, why := tagsOf(entry.Name, text)
			if why != "" {
				return "", bad(why)
			}
			for _, t := range tags {
				if !ownTag.MatchString(t) || tag != "" && t != tag {
					return "", bad("has an image with another tag")
				}
				tag = t
			}
			content = strings.NewReader(string(text))
		}
		if err := out.WriteHeader(&entry); err != nil {
			return "", err
		}
		if _, err := io.Copy(out, content); err != nil {
			return "", err
		}
	}
	if _, ok := seen["manifest.json"]; !ok {
		return "", bad(noImage)
	}
	return tag, out.Close()
}

// tagsOf returns the tags in a file of an archive, or why it is none.
func tagsOf(name string, text []byte) (tags []string, why string) {
	var images []struct{ RepoTags []string }
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	var repositories map[string]map[string]string
	into := map[string]any{"manifest.json": &images, "index.json": &index, "repositories": &repositories}[name]
	if json.Unmarshal(text, into) != nil {
		return nil, "is no archive of an image"
	}
	if name == "manifest.json" {
		if len(images) != 1 || len(images[0].RepoTags) != 1 {
			return nil, "has not exactly one image with one tag"
		}
		tags = images[0].RepoTags
	}
	for _, m := range index.Manifests { // engines with containerd's store go by it
		if name := m.Annotations["io.containerd.image.name"]; name != "" {
			tags = append(tags, strings.TrimPrefix(name, "docker.io/library/"))
		}
	}
	for repository, versions := range repositories { // engines before manifest.json
		for version := range versions {
			tags = append(tags, repository+":"+version)
		}
	}
	return tags, ""
}
