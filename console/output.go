package console

import (
	"errors"
	"io"
	"strconv"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/runner/follow"
	"secbox/sandbox"
)

const (
	outputFirst = 64 << 10 // bytes of a stream that the page of an exec shows
	outputPart  = 64 << 10 // bytes that "show more" adds
	outputPrice = 8        // memory that one byte of output takes in a page, at most some 20 as a control character
)

// inSandbox reports whether a record is of a command in a user's sandbox, whose output is shown
// while it runs and not stored.
func inSandbox(rec audit.Record) bool {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	return sandbox.TraitsOf(rec.Backend).Unconfined || err == nil && len(snapshot.NotEnforced) > 0
}

// outputs returns the beginning of both streams; of a live page whose exec has ended, only where it
// goes on. An event of the download is recorded once, if any output is shown.
func (c *Console) outputs(req *request, rec audit.Record) ([]view.Stream, error) {
	out := make([]view.Stream, 0, 2)
	from, most := follow.Offsets{}, int64(outputFirst)
	goesOn := req.query.Has("shown")
	if goesOn {
		var err error
		if from, err = parseOffsets("shown", req.query.Get("shown")); err != nil {
			return nil, err
		}
		most = 0
	}
	var now runner.Progress
	if !rec.Status.Final() {
		var err error
		if now, err = c.cfg.Runner.Follow(req.ctx(), rec.ExecID, runner.Progress{}); err != nil {
			return nil, err
		}
	}
	_, reachable := req.door.Away(req.ctx(), rec)
	unstored := inSandbox(rec)
	for i, name := range follow.Streams {
		s, err := c.readOutput(req, rec, name, from[i], most)
		if err != nil {
			s = view.Stream{ExecID: rec.ExecID, Name: name, Problem: reason(c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err))}
		}
		s.Live, s.Elsewhere = goesOn || !rec.Status.Final(), !rec.Status.Final() && !now.Here && !reachable
		s.Unstored = unstored
		if len(s.Text) > 0 {
			if err := c.recordDownload(req, rec, name, ""); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// readOutput reads at most most bytes from an offset of a stream on.
func (c *Console) readOutput(req *request, rec audit.Record, name string, from, most int64) (view.Stream, error) {
	s := view.Stream{ExecID: rec.ExecID, Name: name, From: from, Written: rec.StdoutBytes}
	if name == "stderr" {
		s.Written = rec.StderrBytes
	}
	f, size, err := c.cfg.Runner.OpenOutput(req.ctx(), rec, name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	s.Size = size
	if s.Done, s.Lost = rec.Status.Final(), rec.Status == audit.Lost; !s.Done {
		s.Written = max(s.Written, size)
	}
	if err := req.door.Reserve(outputPrice * min(most, max(0, size-from))); err != nil {
		return s, err
	}
	if most == 0 {
		return s, nil
	}
	if s.Terminal, _, err = skip(req.ctx(), f, size, from); err != nil {
		return s, err
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return s, err
	}
	if s.Text, err = io.ReadAll(io.LimitReader(f, most)); err != nil {
		return s, err
	}
	now := s.Terminal
	s.Text = s.Text[:now.Skip(s.Text, s.Done && s.End() == size)]
	return s, nil
}

// outputPage shows a part of a stream of output.
func (c *Console) outputPage(req *request) (ui.Page, error) {
	rec, err := c.execOf(req)
	if err != nil {
		return ui.Page{}, err
	}
	name, err := req.streamName()
	if err != nil {
		return ui.Page{}, err
	}
	from := int64(0)
	if text := req.query.Get("from"); text != "" {
		if from, err = strconv.ParseInt(text, 10, 64); err != nil || from < 0 || from >= view.MaxOutput {
			return ui.Page{}, fault.BadField("from", "must be a number of bytes below %d; download the stream to read more", view.MaxOutput)
		}
	}
	s, err := c.readOutput(req, rec, name, from, min(outputPart, view.MaxOutput-from))
	if from > 0 && from >= s.Size && (err == nil || errors.Is(err, io.EOF)) {
		return ui.Page{},
			fault.BadField("from", "must be below %d, the number of bytes that this stream has; open the exec to read from the beginning",
				s.Size)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return ui.Page{}, c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	if err := c.recordDownload(req, rec, name, ""); err != nil {
		return ui.Page{}, err
	}
	return ui.Page{
		Title: s.Label(), Crumbs: view.ExecCrumbs(rec), Body: view.Output(s),
	}, nil
}

// streamName is the stream of output that the address names.
func (req *request) streamName() (string, error) {
	name := req.Param("stream")
	if name != "stdout" && name != "stderr" {
		return "", fault.New(fault.NotFound, "an exec has the streams stdout and stderr")
	}
	return name, nil
}
