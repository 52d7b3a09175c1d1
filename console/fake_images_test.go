package console_test

import (
	"context"

	"secbox/images/bom"
	"secbox/images/catalog"
)

// fakeImages has one image, whose packages have names as a hostile image gives them.
type fakeImages struct{ app *fakeApp }

func (f fakeImages) List(context.Context) ([]catalog.Image, error) {
	const id = "sha256:abababababababababababababababababababababababababababababababab"
	document, err := bom.Document("data", id, clock, []bom.Package{
		{Kind: "deb", Name: "sqlite3", Version: "3.40.1-2", Arch: "amd64"}, {Kind: "pypi", Name: `<script>alert(1)</script>`, Version: "\u202e1"},
	})
	return []catalog.Image{{
		Name: "data", Ref: catalog.Ref("data", id), ImageID: id, Source: catalog.Built, Base: "secbox-sandbox:latest", BaseID: id,
		SizeBytes: 319 << 20, Packages: 2, CreatedAt: clock, UpdatedAt: clock, Recipe: "apt: [sqlite3] # <b>\n", BOM: document,
	}}, err
}

func (f fakeImages) Get(ctx context.Context, name string) (catalog.Image, error) {
	all, err := f.List(ctx)
	if err == nil && name != all[0].Name {
		err = catalog.Unknown(name)
	}
	return all[0], err
}
