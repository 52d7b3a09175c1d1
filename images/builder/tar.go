package builder

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
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

var ownTag = regexp.MustCompile(
	`^` + regexp.QuoteMeta(catalog.Repository("")) + `[a-z0-9]+(-[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// readTag returns the tag of the one image in a file of docker save. It refuses any other tag than
// an own image's: loading the file would take such a tag from the image that has it.
func readTag(f *os.File) (string, error) {
	bad := func(why string) error {
		return fault.New(fault.InvalidArchive, "%s %s; import takes a file of `core-api image export`, or of `docker save` with one image that "+
			"is tagged %s", f.Name(), why, catalog.Repository("NAME:TAG"))
	}
	archive, tag := tar.NewReader(f), ""
	for n := 0; ; n++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || n > maxEntries {
			return "", bad("is no archive of an image")
		}
		var tags []string
		switch strings.TrimPrefix(header.Name, "./") {
		case "manifest.json":
			var images []struct{ RepoTags []string }
			if json.NewDecoder(io.LimitReader(archive, maxManifest)).Decode(&images) != nil || len(images) != 1 ||
				len(images[0].RepoTags) != 1 || tag != "" {
				return "", bad("has not exactly one image with one tag")
			}
			tag = images[0].RepoTags[0]
			tags = images[0].RepoTags
		case "index.json": // engines with containerd's store go by it
			var index struct {
				Manifests []struct{ Annotations map[string]string }
			}
			if json.NewDecoder(io.LimitReader(archive, maxManifest)).Decode(&index) != nil {
				return "", bad("is no archive of an image")
			}
			for _, m := range index.Manifests {
				if name := m.Annotations["io.containerd.image.name"]; name != "" {
					tags = append(tags, strings.TrimPrefix(name, "docker.io/library/"))
				}
			}
		case "repositories": // engines before manifest.json
			var repositories map[string]map[string]string
			if json.NewDecoder(io.LimitReader(archive, maxManifest)).Decode(&repositories) != nil {
				return "", bad("is no archive of an image")
			}
			for repository, versions := range repositories {
				for version := range versions {
					tags = append(tags, repository+":"+version)
				}
			}
		}
		for _, t := range tags {
			if !ownTag.MatchString(t) {
				return "", bad("has an image with another tag")
			}
		}
	}
	if tag == "" {
		return "", bad("is no archive of an image")
	}
	return tag, nil
}
