// Package catalog has the table of own images: which names execs may use beside the images of the
// settings, and which image of the engine each name stands for. All nodes of an installation share
// the table; each needs the images on its own engine. The package knows neither SQL (store does)
// nor how images are built.
package catalog

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"secbox/fault"
	"secbox/internal/whole"
)

// Bounds of the table. Every record of an exec lists the names that were allowed.
const (
	MaxImages = 64
	MaxName   = 40       // bytes
	MaxRecipe = 64 << 10 // bytes
	MaxBOM    = 4 << 20  // bytes
)

// Source is where an image came from.
type Source string

// The sources.
const (
	Built    Source = "build"
	Imported Source = "import"
	Pulled   Source = "pull"
)

// Image is an own image.
type Image struct {
	Name    string // that requests give
	Ref     string // its tag on engines, with the beginning of its digest
	ImageID string // sha256:…
	Source  Source
	Base    string // the image that it was built on, or the reference that was pulled; empty: it was imported
	BaseID  string // sha256:… of the image that it was built on

	SizeBytes int64
	Packages  int64     // in the bill of materials
	CreatedAt time.Time // since when the name is allowed
	UpdatedAt time.Time // since when the name stands for this image

	// Recipe is the file that it was built from, and Dir the directory that the file was in. List
	// leaves them out, and BOM.
	Recipe string
	Dir    string
	BOM    json.RawMessage // CycloneDX
}

// Store keeps the table. It is safe for concurrent use.
type Store interface {
	// List returns all images by name, without Recipe, Dir and BOM.
	List(ctx context.Context) ([]Image, error)

	// Get returns an image; fault.UnknownImage.
	Get(ctx context.Context, name string) (Image, error)

	// Put allows an image, in the place of the one with the id replaces, or of none if that is
	// empty, and records that. It sets the times. fault.ImageConflict if the name stands for
	// another image meanwhile; fault.InvalidRequest for a row that is not valid, or when there are
	// MaxImages.
	Put(ctx context.Context, image Image, replaces string) (Image, error)

	// Remove disallows an image, records that, and returns it; fault.UnknownImage.
	Remove(ctx context.Context, name string) (Image, error)
}

var validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// CheckName refuses a name that cannot be part of a tag; fault.InvalidRequest.
func CheckName(name string) error {
	if len(name) > MaxName || !validName.MatchString(name) {
		return fault.BadField("name", "%q is not a name of an image: use small letters, digits and single hyphens, at most %d of them, such "+
			"as data", whole.Shorten(name), MaxName)
	}
	return nil
}

var validID = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Check refuses an image that cannot be in the table.
func (i Image) Check() error {
	if err := CheckName(i.Name); err != nil {
		return err
	}
	if !validID.MatchString(i.ImageID) || i.Ref != Ref(i.Name, i.ImageID) || len(i.Recipe) > MaxRecipe || len(i.BOM) > MaxBOM ||
		!json.Valid(i.BOM) || i.Source != Built && i.Source != Imported && i.Source != Pulled {
		return fault.New(fault.InvalidRequest, "the image %s cannot be in the table of own images", i.Name)
	}
	return nil
}

// Repository is the name of an own image on engines, without its tag.
func Repository(name string) string { return "secbox-image-" + name }

// Ref returns the tag of an own image: it has the beginning of the digest, so that another version
// never takes its place.
func Ref(name, imageID string) string {
	digest := strings.TrimPrefix(imageID, "sha256:")
	return Repository(name) + ":" + digest[:min(12, len(digest))]
}

// Unknown is the error of a name that is not in the table.
func Unknown(name string) error {
	return fault.New(fault.UnknownImage, "there is no own image %q; `core-api image list` lists them", whole.Shorten(name))
}

// Conflict is the error of Put when the name stands for another image meanwhile.
func Conflict(name string) error {
	return fault.New(fault.ImageConflict, "another command has changed the image %s meanwhile; see `core-api image list`, and try again", name)
}
