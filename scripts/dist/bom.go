package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"secbox/internal/buildinfo"
)

const bomFile = "secbox-" + buildinfo.Version + ".cdx.json"

// describe writes the notices and the bill of materials.
func (r *release) describe(parts []part) error {
	if err := os.WriteFile(filepath.Join(r.work, noticesFile), notices(parts), 0o644); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom(parts, r.commit, r.time)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, bomFile), b.Bytes(), 0o644)
}

// bom lists the parts in the format of CycloneDX. The hash of a module is the one in go.sum.
func bom(parts []part, commit string, at time.Time) *cdx.BOM {
	product := cdx.Component{
		BOMRef: "secbox", Type: cdx.ComponentTypeApplication, Name: "secbox", Version: buildinfo.Version,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: &[]cdx.Property{{Name: "commit", Value: commit}},
	}
	var components []cdx.Component
	var needed []string
	for _, p := range parts {
		c := cdx.Component{
			BOMRef: "pkg:" + p.kind + "/" + p.name + "@" + p.version, Type: cdx.ComponentTypeLibrary, Name: p.name, Version: p.version,
			ExternalReferences: &[]cdx.ExternalReference{{Type: cdx.ERTypeWebsite, URL: p.source}},
		}
		c.PackageURL = c.BOMRef
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.sum, "h1:")); err == nil && p.sum != "" {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		var licences cdx.Licenses
		for _, l := range p.licences {
			licences = append(licences, cdx.LicenseChoice{License: &cdx.License{ID: l}})
		}
		c.Licenses = &licences
		components = append(components, c)
		needed = append(needed, c.BOMRef)
	}
	list := cdx.NewBOM()
	list.Metadata = &cdx.Metadata{Timestamp: at.Format(time.RFC3339), Component: &product}
	list.Components = &components
	list.Dependencies = &[]cdx.Dependency{{Ref: product.BOMRef, Dependencies: &needed}}
	return list
}
