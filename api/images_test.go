package api_test

import (
	"net/http"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/images/catalog"
)

// putOwnImage allows the image data, as a command does.
func putOwnImage(t *testing.T, f *fixture) {
	t.Helper()
	id := "sha256:" + strings.Repeat("ab", 32)
	command := admin.By(t.Context(), admin.Actor{Type: admin.ByCommand, ID: admin.CommandID})
	if _, err := f.db.OwnImages().Put(command, catalog.Image{
		Name: "data", Ref: catalog.Ref("data", id), ImageID: id, Source: catalog.Built, Base: "secbox-sandbox:latest", BaseID: id,
		Packages: 1, Recipe: "apt: [jq]\n", BOM: []byte(`{"bomFormat":"CycloneDX","components":[{"name":"jq"}]}`),
	}, ""); err != nil {
		t.Fatal(err)
	}
}

// TestOwnImages: the table is listed, and one image has its file and its bill of materials.
func TestOwnImages(t *testing.T) {
	t.Parallel()
	f := start(t)
	putOwnImage(t, f)
	for _, role := range []tokens.Role{tokens.Worker, tokens.Auditor, tokens.Admin} {
		_, secret := f.token(tokens.Spec{Role: role, Name: string(role)})
		list := f.do(request{method: http.MethodGet, path: "/sandbox/images", token: secret})
		if list.StatusCode != http.StatusOK || !strings.Contains(string(list.body), `"ref":"secbox-image-data:abababababab"`) || strings.Contains(string(list.body), "bomFormat") {
			t.Errorf("%s: %d %s", role, list.StatusCode, string(list.body))
		}
		one := f.do(request{method: http.MethodGet, path: "/sandbox/images/data", token: secret})
		if one.StatusCode != http.StatusOK || !strings.Contains(string(one.body), `"components":[{"name":"jq"}]`) || !strings.Contains(string(one.body), `"recipe":"apt: [jq]\n"`) {
			t.Errorf("%s: %d %s", role, one.StatusCode, string(one.body))
		}
		none := f.do(request{method: http.MethodGet, path: "/sandbox/images/nosuch", token: secret})
		if none.StatusCode != http.StatusNotFound || !strings.Contains(string(none.body), `"unknown_image"`) {
			t.Errorf("an unknown one: %d %s", none.StatusCode, string(none.body))
		}
	}
}
