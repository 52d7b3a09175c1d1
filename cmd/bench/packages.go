//go:build linux

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"secbox/packages/archive"
	"secbox/packages/library"
	"secbox/packages/versions"
	"secbox/store"
)

// trusted is how old a file must be for a list to trust its stat data; a little more than the
// library's own bound.
const trusted = 4 * time.Second

// packages measures skill packages beside the programs that do the same with files alone, on one
// disk.
type packages struct {
	*bench
	subjects []*subject
	number   atomic.Int64 // for names that must be new each time
}

func (b *bench) skillPackages(ctx context.Context) error {
	for _, name := range []string{"unzip", "cp", "sync"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: install the package of that name to compare with it", err)
		}
	}
	return b.withSubjects(ctx, "packages", []string{noPool}, func(ctx context.Context, xs []*subject) error {
		p := &packages{bench: b, subjects: xs}
		for _, measure := range []func(context.Context) error{p.lists, p.firstAccesses, p.uploads, p.copies} {
			if err := measure(ctx); err != nil {
				return because(ctx, err)
			}
		}
		return nil
	})
}

func (p *packages) fresh(prefix string) string { return fmt.Sprintf("%s-%d", prefix, p.number.Add(1)) }

// get is a side that times a GET.
func get(name string, path func() string) side {
	return side{name: name, unit: ms, own: true, turn: timed(func(ctx context.Context, x *subject) error {
		return x.call(ctx, http.MethodGet, path(), nil, nil)
	})}
}

// settle flushes the file system of a directory, so that a turn does not pay for the one before.
func settle(dir string) func(context.Context, *subject) error {
	return func(ctx context.Context, _ *subject) error { return program(ctx, "sync", "-f", dir) }
}

// program runs one to its end.
func program(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// lists times the list with status, and a small file, for a user without copies of skills and for
// one with unchanged copies of all.
func (p *packages) lists(ctx context.Context) error {
	const status, content = "/v1/skills/%s/many/status", "/v1/skills/%s/many/skill-0/content?path=src/main.py"
	users := []string{"pinned", "copies"}
	for _, x := range p.subjects {
		if err := x.fillAgent(ctx, "many", p.packages, smallSkill()); err != nil {
			return err
		}
		for n := range p.packages { // an edit that changes nothing makes a copy that is unchanged
			path := fmt.Sprintf("/v1/skills/copies/many/skill-%d/edit?path=SKILL.md", n)
			if err := x.send(ctx, http.MethodPut, path, "text/plain", strings.NewReader(smallSkill()["SKILL.md"]), io.Discard); err != nil {
				return err
			}
		}
	}
	if err := sleepUntil(ctx, time.Now().Add(trusted)); err != nil {
		return err
	}
	for _, user := range users {
		for _, x := range p.subjects {
			if err := x.checkUnchanged(ctx, fmt.Sprintf(status, user), p.packages); err != nil {
				return err
			}
		}
	}
	path := func(format, user string) func() string { return func() string { return fmt.Sprintf(format, user) } }
	title := fmt.Sprintf("list with status of %d skills, nothing changed", p.packages)
	if err := p.compare(ctx, comparison{
		section: "packages", title: title, subjects: p.subjects, rounds: p.pairs, least: leastPairs,
		sides: []side{get("no copies", path(status, users[0])), get("copies of all", path(status, users[1]))},
		rows:  []row{{what: title + ", no copies, p50", bound: 50}, {what: title + ", copies of all, p50", ours: 1, other: 1, bound: 50}},
	}); err != nil {
		return err
	}
	title = "content of a small file over HTTP"
	return p.compare(ctx, comparison{
		section: "packages", title: title, subjects: p.subjects, rounds: 5 * p.pairs, least: leastPairs,
		sides: []side{get("of a version", path(content, users[0])), get("of a copy", path(content, users[1]))},
		rows:  []row{{what: title + ", of a version, p50", bound: 2}, {what: title + ", of a copy, p50", ours: 1, other: 1, bound: 2}},
	})
}

// checkUnchanged makes sure that a user has so many unchanged skills.
func (x *subject) checkUnchanged(ctx context.Context, path string, want int) error {
	var answer struct {
		Data []struct {
			Status string `json:"status"`
		} `json:"data"`
	}
	if err := x.call(ctx, http.MethodGet, path, nil, &answer); err != nil {
		return err
	}
	unchanged := 0
	for _, one := range answer.Data {
		if one.Status == string(library.Unchanged) {
			unchanged++
		}
	}
	if unchanged < want {
		return fmt.Errorf("%s has %d unchanged skills instead of %d", path, unchanged, want)
	}
	return nil
}

// firstAccesses times the first list of new users, and counts the files of skills that any process
// opens meanwhile.
func (p *packages) firstAccesses(ctx context.Context) error {
	n := max(1, p.packages*2/5)
	for _, x := range p.subjects {
		if err := errors.Join(x.fillAgent(ctx, "small", n, smallSkill()), x.fillAgent(ctx, "large", n, largeSkill())); err != nil {
			return err
		}
	}
	stop, err := countOpens(filepath.Join(p.subjects[0].dir, "workspace", "agents"))
	if err != nil {
		return err
	}
	first := func(agent string) side {
		return get(agent+" files", func() string { return "/v1/skills/" + p.fresh("first") + "/" + agent + "/status" })
	}
	title := fmt.Sprintf("first access to an agent's %d skills", n)
	err = p.compare(ctx, comparison{
		section: "packages", title: title, subjects: p.subjects, rounds: p.pairs, least: leastPairs,
		sides: []side{first("large"), first("small")},
		rows:  []row{{what: title + ", with large files beside small ones", other: 1, stat: paired, form: times, bound: 1.5}},
	})
	opens, countErr := stop()
	if err == nil && countErr == nil && p.against == "" {
		c := p.report.Comparisons[len(p.report.Comparisons)-1]
		c.Targets = append(c.Targets, fact("files of skills opened during these", count, float64(opens), 0))
	}
	return errors.Join(err, countErr)
}

// uploads compares an upload, which is on the disk when it is answered, with unzip, and with unzip
// and sync.
func (p *packages) uploads(ctx context.Context) error {
	zip, err := zipped("large", manyFiles(p.files))
	if err != nil {
		return err
	}
	archive := filepath.Join(p.dir, "large.zip")
	if err := os.WriteFile(archive, zip, 0o600); err != nil {
		return err
	}
	unzip := func(sync bool) turn {
		return timed(func(ctx context.Context, _ *subject) error {
			into := filepath.Join(p.dir, p.fresh("unzipped"))
			err := program(ctx, "unzip", "-q", archive, "-d", into)
			if err == nil && sync {
				err = program(ctx, "sync", "-f", into)
			}
			return err
		}).after(settle(p.dir))
	}
	upload := timed(func(ctx context.Context, x *subject) error { return x.upload(ctx, p.fresh("upload"), "overlay", zip) })
	title := fmt.Sprintf("upload of a skill of %d files", p.files)
	return p.compare(ctx, comparison{
		section: "packages", title: title, subjects: p.subjects, rounds: p.fewer(), least: leastRounds,
		sides: []side{
			ours(ms, upload.after(settle(p.dir))),
			{name: "unzip", unit: ms, turn: unzip(false)},
			{name: "unzip, sync -f", unit: ms, turn: unzip(true)},
		},
		rows: []row{
			{what: title, other: 1, stat: paired, form: times, bound: 2},
			{what: title + ", beside unzip and sync -f", other: 2, stat: paired, form: times},
		},
	})
}

// fewer is how often something that writes many files is measured.
func (p *packages) fewer() int { return (p.pairs + 4) / 5 }

// copies compares materialising with cp -a, in this process: no request does this and nothing else.
func (p *packages) copies(ctx context.Context) (err error) {
	state := filepath.Join(p.dir, "own", "state")
	deps, err := p.openWorkspace(filepath.Dir(state))
	if err == nil {
		err = os.MkdirAll(state, 0o700)
	}
	if err != nil {
		return err
	}
	w := deps.Workspace
	defer func() { err = errors.Join(err, w.Close()) }()
	db, err := store.Open(ctx, "", state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	l, err := library.New(library.Config{
		Workspace: w, Versions: versions.New(w), Registry: db.Skills(),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	zip, err := zipped("large", manyFiles(p.files))
	if err != nil {
		return err
	}
	const agent = "copied"
	up, err := l.UploadSome(ctx, library.Owner{AgentID: agent, UserID: "filler"}, library.Baseline, "large.zip", archive.Pick{},
		bytes.NewReader(zip), int64(len(zip)))
	if err != nil {
		return err
	}
	version := filepath.Join(w.Root(), "agents", agent, "skills", "large", up[0].Digest)
	var o library.Owner
	materialise := timed(func(ctx context.Context, _ *subject) error { return l.Materialise(ctx, o, "large") }).
		after(settle(p.dir)).after(func(ctx context.Context, _ *subject) error {
		o = library.Owner{AgentID: agent, UserID: p.fresh("u")}
		_, err := l.List(ctx, o) // makes the user's workspace
		return err
	})
	cp := timed(func(ctx context.Context, _ *subject) error {
		return program(ctx, "cp", "-a", version, filepath.Join(w.Root(), p.fresh("copy")))
	})
	title := fmt.Sprintf("materialising a skill of %d files", p.files)
	return p.compare(ctx, comparison{
		section: "packages", title: title, rounds: p.fewer(), least: leastRounds,
		sides: []side{{name: "core-api", unit: ms, turn: materialise}, {name: "cp -a", unit: ms, turn: cp.after(settle(p.dir))}},
		rows:  []row{{what: title, other: 1, stat: paired, form: times, bound: 1.2}},
	})
}

// fillAgent gives an agent skills.
func (x *subject) fillAgent(ctx context.Context, agent string, n int, files map[string]string) error {
	for i := range n {
		zip, err := zipped(fmt.Sprintf("skill-%d", i), files)
		if err != nil {
			return err
		}
		if err := x.upload(ctx, agent, "baseline", zip); err != nil {
			return err
		}
	}
	return nil
}

// upload sends an archive as a form, as curl does.
func (x *subject) upload(ctx context.Context, agent, scope string, zip []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "skill.zip")
	if err == nil {
		_, err = part.Write(zip)
	}
	if err = errors.Join(err, form.Close()); err != nil {
		return err
	}
	return x.send(ctx, http.MethodPost, "/v1/skills/uploader/"+agent+"/upload?scope="+scope, form.FormDataContentType(), &body, io.Discard)
}

// smallSkill is a typical skill: a text, a program, and some data.
func smallSkill() map[string]string {
	return map[string]string{
		"SKILL.md": "---\nname: Weather\ndescription: Says what the weather is.\n---\n# Weather\n\n" +
			strings.Repeat("How to ask for it.\n", 40),
		"src/main.py":   strings.Repeat("print('sunny')\n", 60),
		"data/city.csv": strings.Repeat("Beijing,25\n", 50),
	}
}

// largeSkill has the same files, half a megabyte in all, which do not compress well.
func largeSkill() map[string]string {
	source := rand.New(rand.NewPCG(1, 2))
	files := smallSkill()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b := make([]byte, 170_000)
		for n := range b {
			b[n] = byte('a' + source.IntN(26))
		}
		files[name] += string(b)
	}
	return files
}

// manyFiles is a skill of so many files of 4 KiB in folders of a hundred.
func manyFiles(n int) map[string]string {
	files := map[string]string{"SKILL.md": "# Large\n\nMany files.\n"}
	for i := 1; i < n; i++ {
		line := fmt.Sprintf("line %d of a file of a skill\n", i)
		files[fmt.Sprintf("d%d/f%d.txt", i/100, i)] = strings.Repeat(line, 4096/len(line)+1)[:4096]
	}
	return files
}

func zipped(name string, files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		w, err := z.Create(name + "/" + file)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[file]); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}
