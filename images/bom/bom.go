// Package bom tells what is installed in an image, and writes it as a bill of materials in the
// format CycloneDX. It has the program that lists packages; callers run it in the image, and what
// it prints is hostile.
package bom

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"secbox/fault"
)

//go:embed inventory.py
var inventory string

// Command lists what is installed, as JSON for Parse. It runs in the image, without a network.
func Command() []string { return []string{"python", "-I", "-c", inventory} }

// Bounds of what an image may say of itself.
const (
	maxPackages = 10_000
	maxText     = 256 // bytes of a name or version
)

// Package is an installed package.
type Package struct {
	Kind    string `json:"kind"` // deb, pypi or npm
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"` // of deb only
}

// URL is the package's purl.
func (p Package) URL() string {
	namespace, query, name := "", "", p.Name
	switch p.Kind {
	case "deb":
		namespace = "debian/"
		if p.Arch != "" {
			query = "?arch=" + url.QueryEscape(p.Arch)
		}
	case "pypi":
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	case "npm":
		if scope, rest, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(scope, "@") {
			namespace, name = "%40"+url.PathEscape(scope[1:])+"/", rest
		}
	}
	return "pkg:" + p.Kind + "/" + namespace + url.PathEscape(name) + "@" + url.PathEscape(p.Version) + query
}

// Parse reads what Command printed, sorted and without repetitions. fault.ImageUnfit if it is
// something else.
func Parse(printed string) ([]Package, error) {
	var all []Package
	if err := json.Unmarshal([]byte(printed), &all); err != nil {
		return nil, fault.Wrap(fault.ImageUnfit, err, "the image does not list what is installed in it")
	}
	if len(all) > maxPackages {
		return nil, fault.New(fault.ImageUnfit, "the image has more than %d packages", maxPackages)
	}
	for _, p := range all {
		if !slices.Contains([]string{"deb", "pypi", "npm"}, p.Kind) || p.Name == "" ||
			max(len(p.Name), len(p.Version), len(p.Arch)) > maxText {
			return nil, fault.New(fault.ImageUnfit, "the image lists a package without a proper name")
		}
	}
	slices.SortFunc(all, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Arch, b.Arch))
	})
	return slices.Compact(all), nil
}

// Document writes the bill of materials of an image. The same packages make the same document.
func Document(name, imageID string, at time.Time, packages []Package) (json.RawMessage, error) {
	doc := cdx.NewBOM()
	doc.Metadata = &cdx.Metadata{
		Timestamp: at.UTC().Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: imageID, Type: cdx.ComponentTypeContainer, Name: name, Version: imageID,
		},
	}
	components := make([]cdx.Component, len(packages))
	for i, p := range packages {
		components[i] = cdx.Component{
			BOMRef: p.URL(), Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: p.URL(),
		}
	}
	doc.Components = &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetEscapeHTML(false).Encode(doc); err != nil {
		return nil, fmt.Errorf("the bill of materials: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// Components returns the packages of a document of this package.
func Components(document json.RawMessage) ([]Package, error) {
	var doc cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(document), cdx.BOMFileFormatJSON).Decode(&doc); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the bill of materials is damaged")
	}
	var all []Package
	if doc.Components != nil {
		for _, c := range *doc.Components {
			kind, _, _ := strings.Cut(strings.TrimPrefix(c.PackageURL, "pkg:"), "/")
			all = append(all, Package{Kind: kind, Name: c.Name, Version: c.Version})
		}
	}
	return all, nil
}
