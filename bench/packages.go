package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"secbox/skills/library"
)

// Packaged is what skill packages cost, beside the programs that do the same with files alone. Both sides of a comparison work on one disk
// in turns, and begin when what was written before is on it: otherwise our flush would pay for what the other side left to be written.
type Packaged struct {
	Files        int     `json:"files"`         // in the large skill
	ArchiveBytes int64   `json:"archive_bytes"` // of it
	Upload       Summary `json:"upload"`        // POST …/upload of an archive that the agent does not have, to the answer; what was written is on the disk then
	Unzip        Summary `json:"unzip"`         // unzip -q of the same archive; nothing is on the disk for certain then
	UnzipSync    Summary `json:"unzip_sync"`    // unzip -q, then sync -f
	UploadRatio  float64 `json:"upload_ratio"`  // to unzip, the median of the rounds' ratios
	SyncedRatio  float64 `json:"synced_ratio"`  // to unzip with sync, likewise

	Skills     int     `json:"skills"`
	ListPinned Summary `json:"list_pinned"` // GET …/status of a user who has no copy of any
	ListCopies Summary `json:"list_copies"` // GET …/status of a user who has copies of all, all unchanged

	FirstSkills int     `json:"first_skills"`
	FirstSmall  Summary `json:"first_small"` // the first GET …/status of a user, of an agent whose skills have small files
	FirstLarge  Summary `json:"first_large"` // the same, with large files
	LargeBytes  int64   `json:"large_bytes"` // of such a skill
	FirstRatio  float64 `json:"first_ratio"`
	FirstOpens  int64   `json:"first_opens"` // of files of skills during all of these; -1 where that cannot be seen

	Materialise      Summary `json:"materialise"` // of the large skill for another user
	Copy             Summary `json:"cp"`          // cp -a of the same files
	MaterialiseRatio float64 `json:"materialise_ratio"`

	ReadPinned Summary `json:"read_pinned"` // GET …/content of a small file of a version
	ReadCopy   Summary `json:"read_copy"`   // of a copy
}

// settled is how old a change must be for a look at files to trust what it sees of them without reading; a little more than the library's own.
const settled = 4 * time.Second

// packages are a server, and a library of our own in another workspace on the same disk.
type packages struct {
	Options
	server *server
	dir    string
	round  int
}

// measurePackages measures with a server of its own.
func measurePackages(ctx context.Context, o Options, dir string) (_ *Packaged, err error) {
	for _, name := range []string{"unzip", "cp", "sync"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%w: install the package of that name to compare with it", err)
		}
	}
	s, err := serve(ctx, o, filepath.Join(dir, "server"), poolMax+"=0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	p := &packages{Options: o, server: s, dir: dir}
	out := &Packaged{Files: o.PackageFiles, Skills: o.PackageSkills}
	for _, measure := range []func(context.Context, *Packaged) error{p.lists, p.reads, p.firsts, p.uploads, p.copies} {
		if err := measure(ctx, out); err != nil {
			return nil, because(ctx, err)
		}
	}
	return out, nil
}

// rounds is how often what writes a thousand files is measured.
func (p *packages) rounds() int { return (p.Pairs + 4) / 5 }

// uploads compares an upload with unzip, and with unzip and sync.
func (p *packages) uploads(ctx context.Context, out *Packaged) error {
	p.say("packages: %d rounds of an upload of %d files, unzip, and unzip with sync", p.rounds(), p.PackageFiles)
	zip, err := zipped("large", manyFiles(p.PackageFiles))
	if err != nil {
		return err
	}
	out.ArchiveBytes = int64(len(zip))
	archive := filepath.Join(p.dir, "large.zip")
	if err := os.WriteFile(archive, zip, 0o600); err != nil {
		return err
	}
	unzip := func(ctx context.Context, sync bool) (time.Duration, error) {
		into := filepath.Join(p.dir, fmt.Sprintf("unzipped-%d-%v", p.next(), sync))
		if err := settle(p.dir); err != nil {
			return 0, err
		}
		begun := time.Now()
		err := program(ctx, "unzip", "-q", archive, "-d", into)
		if err == nil && sync {
			err = program(ctx, "sync", "-f", into)
		}
		return time.Since(begun), err
	}
	type plain struct{ unzip, synced time.Duration }
	ours, theirs, err := alternate(ctx, p.rounds(), leastRounds,
		func(ctx context.Context) (time.Duration, error) {
			if err := settle(p.dir); err != nil {
				return 0, err
			}
			begun := time.Now() // an agent of its own, which has no version of it yet
			err := p.server.upload(ctx, fmt.Sprintf("upload-%d", p.next()), "bench", "overlay", zip)
			return time.Since(begun), err
		},
		func(ctx context.Context) (t plain, err error) {
			if t.unzip, err = unzip(ctx, false); err == nil {
				t.synced, err = unzip(ctx, true)
			}
			return t, err
		})
	if err != nil {
		return err
	}
	var unzips, synceds []time.Duration
	for _, t := range theirs {
		unzips, synceds = append(unzips, t.unzip), append(synceds, t.synced)
	}
	out.Upload, out.Unzip, out.UnzipSync = summarise(ours), summarise(unzips), summarise(synceds)
	out.UploadRatio, out.SyncedRatio = pairedRatio(ours, unzips), pairedRatio(ours, synceds)
	return nil
}

// lists times the list with status for a user without a copy and for one with copies of all.
func (p *packages) lists(ctx context.Context, out *Packaged) error {
	p.say("packages: an agent with %d skills, and a user with copies of all", p.PackageSkills)
	const agent = "many"
	if err := p.fill(ctx, agent, p.PackageSkills, smallSkill()); err != nil {
		return err
	}
	for n := range p.PackageSkills { // an edit that changes nothing makes a copy that is unchanged
		path := skillPath(agent, "copies", skillName(n)) + "/edit?path=SKILL.md"
		if err := p.server.send(ctx, http.MethodPut, path, "text/plain", []byte(smallSkill()["SKILL.md"])); err != nil {
			return err
		}
	}
	for _, user := range []string{"pinned", "copies"} {
		select {
		case <-time.After(settled):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := p.checkedList(ctx, agent, user); err != nil {
			return err
		}
	}
	p.say("packages: %d lists with status of each", p.Pairs)
	timed := func(user string) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) { return p.list(ctx, agent, user) }
	}
	pinned, copies, err := alternate(ctx, p.Pairs, leastPairs, timed("pinned"), timed("copies"))
	out.ListPinned, out.ListCopies = summarise(pinned), summarise(copies)
	return err
}

// checkedList makes sure that the user has all skills, unchanged.
func (p *packages) checkedList(ctx context.Context, agent, user string) error {
	var answer struct {
		Data []struct {
			Status string `json:"status"`
		} `json:"data"`
	}
	if err := p.server.call(ctx, http.MethodGet, userPath(agent, user)+"/status", nil, &answer); err != nil {
		return err
	}
	unchanged := 0
	for _, one := range answer.Data {
		if one.Status == string(library.Unchanged) {
			unchanged++
		}
	}
	if unchanged < p.PackageSkills {
		return fmt.Errorf("%s has %d skills, %d of them unchanged, instead of %d", user, len(answer.Data), unchanged, p.PackageSkills)
	}
	return nil
}

func (p *packages) list(ctx context.Context, agent, user string) (time.Duration, error) {
	begun := time.Now()
	_, err := p.server.fetch(ctx, http.MethodGet, userPath(agent, user)+"/status", nil)
	return time.Since(begun), err
}

// reads times the content of a small file.
func (p *packages) reads(ctx context.Context, out *Packaged) error {
	p.say("packages: %d reads of a small file of a version and of a copy", 5*p.Pairs)
	timed := func(user string) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			begun := time.Now()
			_, err := p.server.fetch(ctx, http.MethodGet, skillPath("many", user, skillName(0))+"/content?path="+url.QueryEscape("src/main.py"), nil)
			return time.Since(begun), err
		}
	}
	pinned, copies, err := alternate(ctx, 5*p.Pairs, leastPairs, timed("pinned"), timed("copies"))
	out.ReadPinned, out.ReadCopy = summarise(pinned), summarise(copies)
	return err
}

// firsts times what users wait who come for the first time, and counts the files of skills that anybody opens meanwhile.
func (p *packages) firsts(ctx context.Context, out *Packaged) error {
	out.FirstSkills = max(1, p.PackageSkills*2/5)
	large := largeSkill()
	for _, content := range large {
		out.LargeBytes += int64(len(content))
	}
	p.say("packages: two agents with %d skills, one of them with skills of %s", out.FirstSkills, binarySize(out.LargeBytes))
	for agent, files := range map[string]map[string]string{"small": smallSkill(), "large": large} {
		if err := p.fill(ctx, agent, out.FirstSkills, files); err != nil {
			return err
		}
	}
	p.say("packages: %d first accesses to each", p.Pairs)
	stop, err := countOpens(filepath.Join(p.server.dir, "workspace", "agents"))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	timed := func(agent string) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			return p.list(ctx, agent, fmt.Sprintf("first-%d", p.next()))
		}
	}
	small, big, err := alternate(ctx, p.Pairs, leastPairs, timed("small"), timed("large"))
	out.FirstOpens = -1
	if stop != nil {
		var countErr error
		out.FirstOpens, countErr = stop()
		err = errors.Join(err, countErr)
	}
	out.FirstSmall, out.FirstLarge, out.FirstRatio = summarise(small), summarise(big), pairedRatio(big, small)
	return err
}

// fill gives an agent skills.
func (p *packages) fill(ctx context.Context, agent string, count int, files map[string]string) error {
	for n := range count {
		zip, err := zipped(skillName(n), files)
		if err != nil {
			return err
		}
		if err := p.server.upload(ctx, agent, "filler", "baseline", zip); err != nil {
			return err
		}
	}
	return nil
}

// next numbers what must be new each time.
func (p *packages) next() int { p.round++; return p.round }

func skillName(n int) string { return fmt.Sprintf("skill-%d", n) }

func userPath(agent, user string) string { return "/v1/skills/" + user + "/" + agent }

func skillPath(agent, user, skill string) string { return userPath(agent, user) + "/" + skill }

// pairedRatio is the median of the rounds' ratios: steadier than the ratio of the medians when the machine's load changes.
func pairedRatio(ours, theirs []time.Duration) float64 {
	var all []float64
	for n := range ours {
		all = append(all, float64(ours[n])/float64(theirs[n]))
	}
	return median(all)
}

// program runs one to its end.
func program(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
