package bench

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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"secbox/pathadapter"
	"secbox/skills/library"
	"secbox/store"
	"secbox/workspace"
)

// smallSkill is a skill as most are: a text, a program, and some data below.
func smallSkill() map[string]string {
	return map[string]string{
		"SKILL.md":      "---\nname: Weather\ndescription: Says what the weather is.\n---\n# Weather\n\n" + strings.Repeat("How to ask for it.\n", 40),
		"src/main.py":   strings.Repeat("print('sunny')\n", 60),
		"data/city.csv": strings.Repeat("Beijing,25\n", 50),
	}
}

// largeSkill has the same files, half a megabyte in all, and none that packs well.
func largeSkill() map[string]string {
	source := rand.New(rand.NewPCG(1, 2))
	files := smallSkill()
	for name := range files {
		b := make([]byte, 170_000)
		for n := range b {
			b[n] = byte('a' + source.IntN(26))
		}
		files[name] += string(b)
	}
	return files
}

// manyFiles is a skill of so many files of 4 KiB in folders of a hundred.
func manyFiles(count int) map[string]string {
	files := map[string]string{"SKILL.md": "# Large\n\nMany files.\n"}
	for n := 1; n < count; n++ {
		line := fmt.Sprintf("line %d of a file of a skill\n", n)
		files[fmt.Sprintf("d%d/f%d.txt", n/100, n)] = strings.Repeat(line, 4096/len(line)+1)[:4096]
	}
	return files
}

// zipped packs a skill.
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

// upload sends an archive as a form, as curl does.
func (s *server) upload(ctx context.Context, agent, user, scope string, zip []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "skill.zip")
	if err == nil {
		_, err = part.Write(zip)
	}
	if err = errors.Join(err, form.Close()); err != nil {
		return err
	}
	return s.send(ctx, http.MethodPost, userPath(agent, user)+"/upload?scope="+scope, form.FormDataContentType(), body.Bytes())
}

// send makes a request with a body that is no JSON; anything but 200 is an error.
func (s *server) send(ctx context.Context, method, path, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, content)
	}
	return err
}

// copies compares materialising with cp -a, in this process: over HTTP there is no request that does this and nothing else.
func (p *packages) copies(ctx context.Context, out *Packaged) (err error) {
	p.say("packages: %d rounds of materialising %d files and cp -a", p.rounds(), p.PackageFiles)
	root, state := filepath.Join(p.dir, "own", "workspace"), filepath.Join(p.dir, "own", "state")
	if err := errors.Join(os.MkdirAll(root, 0o700), os.MkdirAll(state, 0o700)); err != nil {
		return err
	}
	l, closeAll, err := openLibrary(ctx, root, state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	zip, err := zipped("large", manyFiles(p.PackageFiles))
	if err != nil {
		return err
	}
	const agent = "copied"
	up, err := l.Upload(ctx, library.Owner{AgentID: agent, UserID: "filler"}, library.Baseline, "large.zip", bytes.NewReader(zip), int64(len(zip)))
	if err != nil {
		return err
	}
	version := filepath.Join(root, "agents", agent, "skills", "large", up.Digest)
	ours, theirs, err := alternate(ctx, p.rounds(), leastRounds,
		func(ctx context.Context) (time.Duration, error) {
			o := library.Owner{AgentID: agent, UserID: fmt.Sprintf("u%d", p.next())}
			// Their workspace is there already, as it is when the first skill of many is materialised.
			if _, err := l.List(ctx, o); err != nil {
				return 0, err
			}
			if err := settle(p.dir); err != nil {
				return 0, err
			}
			begun := time.Now()
			err := l.Materialise(ctx, o, "large")
			return time.Since(begun), err
		},
		func(ctx context.Context) (time.Duration, error) {
			into := filepath.Join(root, fmt.Sprintf("copy-%d", p.next()))
			if err := settle(p.dir); err != nil {
				return 0, err
			}
			begun := time.Now()
			err := program(ctx, "cp", "-a", version, into)
			return time.Since(begun), err
		})
	if err != nil {
		return err
	}
	out.Materialise, out.Copy, out.MaterialiseRatio = summarise(ours), summarise(theirs), pairedRatio(ours, theirs)
	return nil
}

// openLibrary opens a library on directories of its own, as a server does.
func openLibrary(ctx context.Context, root, state string) (*library.Library, func() error, error) {
	adapter, err := pathadapter.New(pathadapter.Config{Mode: pathadapter.Linux, Root: root})
	if err != nil {
		return nil, nil, err
	}
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	files, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	if err != nil {
		return nil, nil, err
	}
	db, err := store.Open(ctx, "", state)
	if err != nil {
		return nil, nil, errors.Join(err, files.Close())
	}
	closeAll := func() error { return errors.Join(db.Close(), files.Close()) }
	l, err := library.New(library.Config{Workspace: files, Registry: db.Skills(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return l, closeAll, nil
}
