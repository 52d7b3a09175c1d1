package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences under which a part may be in a release. MPL-2.0 needs the address of the
// source, which the notices have.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0"}

// enough is how much of a licence's file must be words of known licences, in percent. The rest is
// names of authors.
const enough = 75

// part is something of others in the programs: a Go module, Go's library, or a vendored file.
type part struct {
	name, version string
	kind          string // of package URLs: golang or npm
	sum           string // of a module, as in go.sum
	source        string // address of the source
	dir           string
	licences      []string // SPDX identifiers, sorted
	texts         []text
}

// text is a file with a licence or a notice.
type text struct{ file, content string }

// parts finds what the programs for some targets are made of. A part without a licence, or with one
// that is not allowed, is an error.
func (r *release) parts(ctx context.Context, chosen []target) ([]part, error) {
	found := map[string]part{}
	dirs := map[string]map[string]bool{} // of each part, those with a package or above one
	for _, t := range chosen {
		packages, err := r.needed(ctx, t, "core-api", "secbox")
		if err != nil {
			return nil, err
		}
		inside, err := r.needed(ctx, target{"linux", t.arch}, "sandbox-init")
		if err != nil {
			return nil, err
		}
		for _, p := range append(packages, inside...) {
			if p.Standard || p.Module.Main {
				continue
			}
			m := p.Module
			if found[m.Path].name == "" {
				found[m.Path] = part{name: m.Path, version: m.Version, kind: "golang", sum: m.Sum, source: sourceOf(m.Path), dir: m.Dir}
				dirs[m.Path] = map[string]bool{}
			}
			for dir := p.Dir; strings.HasPrefix(dir, m.Dir); dir = filepath.Dir(dir) {
				dirs[m.Path][dir] = true
			}
		}
	}
	goes, err := output(ctx, r.root, nil, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goroot, version, _ := strings.Cut(goes, "\n")
	found["std"] = part{name: "std", version: strings.TrimPrefix(version, "go"), kind: "golang", source: "https://go.dev/dl", dir: goroot}
	dirs["std"] = map[string]bool{goroot: true}

	var parts []part
	for _, name := range slices.Sorted(maps.Keys(found)) {
		p := found[name]
		for _, dir := range slices.Sorted(maps.Keys(dirs[name])) {
			if err := p.read(dir); err != nil {
				return nil, err
			}
		}
		parts = append(parts, p)
	}
	vendored, err := r.vendored(ctx)
	if err != nil {
		return nil, err
	}
	parts = append(parts, vendored...)
	problems := make([]error, len(parts))
	for i := range parts {
		problems[i] = parts[i].judge()
	}
	return parts, errors.Join(problems...)
}

// listed is a package as go list describes it.
type listed struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Sum, Dir string
		Main                    bool
	}
}

// needed lists the packages in programs for a target.
func (r *release) needed(ctx context.Context, t target, programs ...string) ([]listed, error) {
	args := []string{"list", "-deps", "-json=Dir,Standard,Module"}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	list, err := output(ctx, r.root, environ(t), "go", args...)
	if err != nil {
		return nil, err
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(list)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// sourceOf returns the address of a module's repository, or of the page that leads to it.
func sourceOf(module string) string {
	words := strings.Split(module, "/")
	if words[0] == "github.com" && len(words) > 3 {
		words = words[:3]
	}
	return "https://" + strings.Join(words, "/")
}

// licenceFile matches the names of files with a licence or a notice.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// addition matches the names of files that add to the licence in another file: notices, grants of
// patents, and the licences of what the part itself contains. Much of them may be other words.
var addition = regexp.MustCompile(`(?i)^(notice|patents|licen[cs]e-)`)

// read adds the licences in a directory.
func (p *part) read(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.IsDir() || !licenceFile.MatchString(f.Name()) || filepath.Ext(f.Name()) == ".go" {
			continue
		}
		if err := p.add(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) add(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(p.dir, file)
	if err != nil {
		return err
	}
	p.texts = append(p.texts, text{filepath.ToSlash(name), strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))})
	return nil
}

// vendoredBy matches the first line of a vendored file's licence.
var vendoredBy = regexp.MustCompile(`^\S+ is \S+ of (\S+) (\S+) from (npm)`)

// vendored finds the files of others in this repository by their licences, named *.LICENSE.
func (r *release) vendored(ctx context.Context) ([]part, error) {
	files, err := output(ctx, r.root, nil, "git", "ls-files", "*.LICENSE")
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, file := range strings.Fields(files) {
		p := part{dir: r.root}
		if err := p.add(filepath.Join(r.root, file)); err != nil {
			return nil, err
		}
		m := vendoredBy.FindStringSubmatch(p.texts[0].content)
		if m == nil {
			return nil, fmt.Errorf("%s does not begin with the name and the version of its package", file)
		}
		p.name, p.version, p.kind, p.source = m[1], m[2], m[3], "https://www.npmjs.com/package/"+m[1]
		parts = append(parts, p)
	}
	return parts, nil
}

// judge names the licences of a part, and reports an error unless all of them are known and
// allowed.
func (p *part) judge() error {
	named := map[string]bool{}
	for _, t := range p.texts {
		found := licensecheck.Scan([]byte(t.content))
		if found.Percent < enough && !addition.MatchString(filepath.Base(t.file)) {
			return fmt.Errorf("%s %s: only %.0f %% of %s is a known licence; read it", p.name, p.version, found.Percent, t.file)
		}
		for _, m := range found.Match {
			if !m.IsURL && m.ID != "GooglePatentsFile" { // a grant
				named[m.ID] = true
			}
		}
	}
	p.licences = slices.Sorted(maps.Keys(named))
	if len(p.licences) == 0 {
		return fmt.Errorf("%s %s has no licence, so a release may not contain it; use another module", p.name, p.version)
	}
	for _, l := range p.licences {
		if !slices.Contains(allowed, l) {
			return fmt.Errorf("%s %s has the licence %s, which is not one of %s", p.name, p.version, l, strings.Join(allowed, ", "))
		}
	}
	return nil
}

const noticesFile = "THIRD-PARTY-NOTICES.txt"

// notices lists the parts with their licences, and has each text once.
func notices(parts []part) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "secbox contains the following %d parts of others. Each name is followed by version, licences, and where its source is.\n\n", len(parts))
	users := map[string][]string{} // of each text
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s\n    %s; %s\n", p.name, p.version, strings.Join(p.licences, ", "), p.source)
		for _, t := range p.texts {
			users[t.content] = append(users[t.content], p.name+" ("+t.file+")")
		}
	}
	texts := slices.SortedFunc(maps.Keys(users), func(a, b string) int { return cmp.Compare(users[a][0], users[b][0]) })
	for _, content := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 100), strings.Join(users[content], "\n"), content)
	}
	return b.Bytes()
}
