//go:build unix

package e2e

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// registryFiles is how many files the skills of TestRegistryKilled have beside SKILL.md.
const registryFiles = 12

func registryFile(name string, n int) (path, content string) {
	return fmt.Sprintf("f%d.txt", n), strings.Repeat(fmt.Sprintf("%s %d\n", name, n), 500)
}

// TestRegistryKilled kills core-api while it publishes and installs, at moments that are known by
// the files that it has written. Afterwards a skill is published as a whole or not at all, and a
// user who installs it has all of its files or no skill.
func TestRegistryKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "workspace")
	p := serve(t, dir, "CORE_API_POOL_MAX=0")
	// SKILL.md is the last file that an installation writes. No request writes 1000 files: the last
	// kill comes after the answers.
	for _, files := range []int{0, 1, registryFiles, registryFiles + 1, 1000} {
		name := fmt.Sprintf("s%d", files)
		for n := range registryFiles {
			path, content := registryFile(name, n)
			p.send(http.MethodPut, "/v1/sandbox/ann/ag/edit?path=skills/"+name+"/"+path, content).done(t)
		}
		p.send(http.MethodPut, "/v1/sandbox/ann/ag/edit?path=skills/"+name+"/SKILL.md", "# "+name+"\n").done(t)

		publish := "/v1/registry/ann/ag/skills/" + name + "/publish"
		answered := p.killDuring(publish, root, countFiles(root)+files)
		p = serve(t, dir, "CORE_API_POOL_MAX=0")
		published := p.published(name)
		switch {
		case answered && !published:
			t.Errorf("%s was answered as published and is not", name)
		case !published:
			p.send(http.MethodPost, publish, nil).json(t).wants(t, object{"data.version": 1})
		}
		events := p.get("/v1/registry/skills/" + name + "/events").list("data.items")
		if len(events) != 1 || events[0].str("action") != "published" {
			t.Errorf("%s: on record is %v", name, events)
		}

		install := "/v1/registry/bob/ag/skills/" + name + "/install"
		there := filepath.Join(root, "projects/ag~bob/work/skills", name)
		answered = p.killDuring(install, there, files)
		p = serve(t, dir, "CORE_API_POOL_MAX=0")
		whole := p.wholeOrNothing(there, "bob", name)
		if answered && !whole {
			t.Errorf("%s was answered as installed and is not", name)
		}
		if files == 1000 && (!answered || !published) {
			t.Errorf("%s: installed and answered %t, published %t", name, answered, published)
		}
		t.Logf("killed after %d files: published %t, installed %t", files, published, whole)
		p.send(http.MethodPost, "/v1/registry/carl/ag/skills/"+name+"/install", nil).json(t).wants(t, object{"data.version": 1})
		if !p.wholeOrNothing(filepath.Join(root, "projects/ag~carl/work/skills", name), "carl", name) {
			t.Errorf("%s cannot be installed", name)
		}
	}
}

// killDuring sends a request, kills the process once a directory has so many files, and reports
// whether the request succeeded.
func (p *process) killDuring(path, dir string, files int) bool {
	p.t.Helper()
	answered := make(chan bool, 1)
	go func() {
		resp, err := http.Post(p.url+path, "", nil)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err == nil && resp.StatusCode == http.StatusOK
	}()
	for ended := false; !ended && countFiles(dir) < files; {
		select {
		case ok := <-answered:
			ended = true
			answered <- ok
		default:
		}
	}
	p.kill()
	return <-answered
}

func countFiles(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}

func (p *process) published(name string) bool {
	p.t.Helper()
	for _, e := range p.get("/v1/registry/skills?limit=100").list("data.items") {
		if e.str("name") == name {
			return true
		}
	}
	return false
}

// wholeOrNothing reports whether a user has a skill. It fails if the catalog lists a part of one.
func (p *process) wholeOrNothing(dir, user, name string) bool {
	p.t.Helper()
	_, err := os.Stat(filepath.Join(dir, "SKILL.md"))
	whole := err == nil
	for n := range registryFiles {
		path, want := registryFile(name, n)
		if got, err := os.ReadFile(filepath.Join(dir, path)); whole && (err != nil || string(got) != want) {
			p.t.Errorf("%s of %s has SKILL.md and not all of %s: %v", name, user, path, err)
		}
	}
	listed := false
	for _, e := range p.get("/v1/catalog/" + user + "/ag").list("data.entries") {
		listed = listed || e.str("name") == name
	}
	if listed != whole {
		p.t.Errorf("%s of %s: whole %t, in the catalog %t", name, user, whole, listed)
	}
	return whole
}
