// Package assets has the style sheet and the scripts of the console, embedded, under names that
// contain a digest of the content: a browser keeps them for a year, and a new version has a new
// name. htmx is vendored from npm; static/htmx.LICENSE has its version.
package assets

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"secbox/api/content"
	"secbox/internal/icon"
)

// Prefix is the beginning of every asset's path.
const Prefix = "/console/assets/"

//go:embed static
var static embed.FS

type asset struct {
	text, gzipped []byte
	contentType   string
}

// all has the assets by the names in their paths, and these by their file names.
type all struct {
	byName map[string]asset
	names  map[string]string
}

var load = sync.OnceValue(func() all {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	a := all{map[string]asset{}, map[string]string{}}
	add := func(file, contentType string, text []byte) {
		sum := sha256.Sum256(text)
		base, ext, _ := strings.Cut(file, ".")
		name := base + "." + hex.EncodeToString(sum[:6]) + "." + ext
		a.byName[name], a.names[file] = asset{text, content.Gzip(text), contentType}, name
	}
	add("icon.svg", "image/svg+xml", icon.SVG)
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
	entries, _ := fs.ReadDir(files, ".")
	for _, entry := range entries {
		contentType, ok := types[path.Ext(entry.Name())]
		if !ok {
			continue
		}
		text, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			panic(err)
		}
		add(entry.Name(), contentType, text)
	}
	return a
})

// Path returns the path of a file of static, such as "app.css". It panics for an unknown one: names
// are constants of templates.
func Path(file string) string {
	name, ok := load().names[file]
	if !ok {
		panic(fmt.Sprintf("the console has no asset %q", file))
	}
	return Prefix + name
}

// Serve answers with an asset by the name in its path. It reports whether there is one.
func Serve(w http.ResponseWriter, r *http.Request, name string) bool {
	a, ok := load().byName[name]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := a.text
	if content.AcceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		body = a.gzipped
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails only if the client is gone
	}
	return true
}
