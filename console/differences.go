package console

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/runner"
	"secbox/runner/follow"
)

// diffMost bounds the content of a file that is compared by lines, in bytes.
const diffMost = 512 << 10

// differences compares what a replay left with what its first exec left: a list of all files, or
// one file by its lines.
func (c *Console) differences(req *request) (ui.Page, error) {
	second, err := c.execOf(req)
	if err != nil {
		return ui.Page{}, err
	}
	if second.ReplayOf == "" || !second.Status.Final() {
		return ui.Page{}, fault.New(fault.NotFound, "only a replay that has ended is compared with its first exec; open the page of a replay")
	}
	first, err := c.cfg.Execs.Get(req.ctx(), req.caller, second.ReplayOf)
	if err != nil {
		return ui.Page{}, err
	}
	p := view.DifferencesPage{ExecID: second.ExecID, First: first.ExecID}
	page := ui.Page{Title: "Differences from the first exec", Crumbs: view.ExecCrumbs(second)}
	sides := [2]side{{c: c, req: req, rec: first}, {c: c, req: req, rec: second}}
	for i := range sides {
		if err := sides[i].open(); err != nil {
			return ui.Page{}, err
		}
		defer sides[i].all.Close()
	}
	of := req.query.Get("of")
	if of == "" {
		p.Pairs, p.More = pairsOf(sides[0].all.List(), sides[1].all.List())
		page.Body = view.Differences(p)
		return page, nil
	}
	p.Shown.Name = of
	var texts [2][]byte
	for i := range sides {
		if texts[i], p.Shown.Sides[i], err = sides[i].read(of); err != nil {
			return ui.Page{}, err
		}
	}
	if p.Shown.Sides == [2]*runner.Artifact{} {
		return ui.Page{}, fault.New(fault.UnknownArtifact, "neither exec left %s; choose one of the list", ui.Cut(of, 200))
	}
	if err := c.compareTexts(req, &p, texts); err != nil {
		return ui.Page{}, err
	}
	page.Body = view.Difference(p)
	return page, nil
}

// compareTexts compares the contents of a file on both sides by lines, if they are text; a nil one
// is too large.
func (c *Console) compareTexts(req *request, p *view.DifferencesPage, texts [2][]byte) error {
	size := int64(0)
	for i, text := range texts {
		switch size += int64(len(text)); {
		case p.Shown.Sides[i] == nil: // compared with nothing
		case text == nil:
			p.Why = "Files of more than " + ui.Bytes(diffMost) + " are not compared by lines."
		case bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text):
			p.Why = "It is not UTF-8 text, so that it is not compared by lines."
		}
	}
	if p.Why != "" || bytes.Equal(texts[0], texts[1]) {
		return nil
	}
	if err := req.door.Reserve(outputPrice * size); err != nil {
		return err
	}
	return admission.Do(req.ctx(), func() error {
		_, unified, _ := bytes.Cut(diff.Diff("first exec", texts[0], "replay", texts[1]), []byte("\n")) // without the line "diff from to"
		p.Lines, p.Cut = diffLinesOf(string(unified))
		return nil
	})
}

// diffLinesOf returns the first lines of a unified diff.
func diffLinesOf(text string) (lines []view.DiffLine, cut bool) {
	shown := view.NewExcerpt(text)
	for line := range strings.Lines(shown.Text) {
		if len(lines) == diffLines {
			return lines, true
		}
		one := view.DiffLine{Text: strings.TrimSuffix(line, "\n")}
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "Binary files"):
			one.Class = "t-bold"
		case strings.HasPrefix(line, "+"):
			one.Class = "t-f2"
		case strings.HasPrefix(line, "-"):
			one.Class = "t-f1"
		case strings.HasPrefix(line, "@@"):
			one.Class = "t-dim"
		}
		lines = append(lines, one)
	}
	return lines, shown.Cut
}

// side is what one of two compared execs left.
type side struct {
	c   *Console
	req *request
	rec audit.Record
	all runner.Artifacts
}

func (s *side) open() (err error) {
	s.all, err = s.c.cfg.Runner.Artifacts(s.req.ctx(), s.rec)
	return s.c.cfg.Execs.UnlessRemoved(s.req.ctx(), s.rec, err)
}

// read returns the content of an artifact or a stream of output, on record as a download; nil if it
// is too large. The file is nil if this exec has none.
func (s *side) read(name string) (text []byte, file *runner.Artifact, err error) {
	content, of, err := s.openFile(s.req.ctx(), name)
	if fault.Is(err, fault.UnknownArtifact) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, s.c.cfg.Execs.UnlessRemoved(s.req.ctx(), s.rec, err)
	}
	defer content.Close()
	if of.Size > diffMost {
		return nil, &of, nil
	}
	if err := s.req.door.Reserve(of.Size); err != nil {
		return nil, nil, err
	}
	what, path := "artifact", of.Path
	if slices.Contains(follow.Streams[:], name) {
		what, path = name, ""
	}
	if err := s.c.cfg.Execs.RecordDownload(s.req.ctx(), s.req.caller, s.rec, what, path); err != nil { // also for HEAD, whose length tells
		return nil, nil, err
	}
	text = make([]byte, of.Size)
	if _, err := io.ReadFull(content, text); err != nil {
		return nil, nil, fault.Wrap(fault.Internal, err, "the file cannot be read")
	}
	return text, &of, nil
}

func (s *side) openFile(ctx context.Context, name string) (io.ReadSeekCloser, runner.Artifact, error) {
	if path, ok := strings.CutPrefix(name, view.ArtifactPoint); ok {
		return s.all.Open(ctx, path)
	}
	if !slices.Contains(follow.Streams[:], name) {
		return nil, runner.Artifact{}, fault.New(fault.UnknownArtifact, "no such file")
	}
	content, size, err := s.c.cfg.Runner.OpenOutput(ctx, s.rec, name)
	return content, runner.Artifact{Path: name, Size: size}, err
}

// pairsOf pairs the artifacts of two execs by their paths, those that differ first.
func pairsOf(first, second runner.ArtifactList) (pairs []view.FilePair, more int) {
	at := map[string]int{}
	for i, list := range [2]runner.ArtifactList{first, second} {
		for _, item := range list.Items {
			n, known := at[item.Path]
			if !known {
				n = len(pairs)
				at[item.Path] = n
				pairs = append(pairs, view.FilePair{Name: view.ArtifactPoint + item.Path})
			}
			pairs[n].Sides[i] = &item
		}
	}
	slices.SortStableFunc(pairs, func(a, b view.FilePair) int {
		if a.Same() != b.Same() {
			return map[bool]int{false: -1, true: 1}[a.Same()]
		}
		return strings.Compare(a.Name, b.Name)
	})
	shown := min(len(pairs), view.MaxFileRows)
	return pairs[:shown], len(pairs) - shown
}
