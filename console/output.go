package console

import (
	"errors"
	"io"
	"strconv"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/runner/follow"
	"secbox/sandbox"
)

const (
	outputFirst = 64 << 10 // bytes of a stream that the page of an exec shows
	outputPart  = 64 << 10 // bytes that "show more" adds
	outputMost  = 1 << 20  // bytes of a stream that pages show; the rest is downloaded
	outputPrice = 8        // memory that one byte of output takes in a page, at most some 20 as a control character
)

// stream is a part of a stream of output.
type stream struct {
	execID, name string
	from         int64
	text         []byte
	before       ui.Terminal // the text
	size         int64       // of what was kept
	written      int64       // by the job
	done         bool        // it does not grow any longer
	problem      string
	live         bool // it grows, or a live page has all that is before from
	elsewhere    bool // it can be read when the exec has ended
	lost         bool // the exec's end was never reported
	unstored     bool // it is that of a command in a sandbox, whose caller gets it
}

// inSandbox reports whether a record is of a command in a user's sandbox, whose output is shown while it runs and not stored.
func inSandbox(rec audit.Record) bool {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	return sandbox.TraitsOf(rec.Backend).Unconfined || err == nil && len(snapshot.NotEnforced) > 0
}

// next is where the next part begins; 0 if pages show no more.
func (s stream) next() int64 {
	if end := s.end(); end < min(s.size, outputMost) && (len(s.text) > 0 && !s.live || s.live && s.done) {
		return end
	}
	return 0
}

func (s stream) end() int64 { return s.from + int64(len(s.text)) }

// cut is how many bytes were not kept.
func (s stream) cut() int64 {
	if !s.done || s.lost || s.unstored {
		return 0
	}
	return max(0, s.written-s.size)
}

// label is the name of the stream for readers.
func (s stream) label() string {
	if s.name == "stderr" {
		return "Standard error"
	}
	return "Standard output"
}

// outputs returns the beginning of both streams; of a live page whose exec has ended, only where it goes on. An event of the download is recorded once,
// if any output is shown.
func (c *Console) outputs(v *visit, rec audit.Record) ([]stream, error) {
	out := make([]stream, 0, 2)
	from, most := follow.Offsets{}, int64(outputFirst)
	goesOn := v.query.Has("shown")
	if goesOn {
		var err error
		if from, err = parseOffsets("shown", v.query.Get("shown")); err != nil {
			return nil, err
		}
		most = 0
	}
	var now runner.Progress
	if !rec.Status.Final() {
		var err error
		if now, err = c.cfg.Runner.Follow(v.ctx(), rec.ExecID, runner.Progress{}); err != nil {
			return nil, err
		}
	}
	_, reachable := v.door.Away(v.ctx(), rec)
	unstored := inSandbox(rec)
	for i, name := range follow.Streams {
		s, err := c.readOutput(v, rec, name, from[i], most)
		if err != nil {
			s = stream{execID: rec.ExecID, name: name, problem: reason(c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err))}
		}
		s.live, s.elsewhere = goesOn || !rec.Status.Final(), !rec.Status.Final() && !now.Here && !reachable
		s.unstored = unstored
		if len(s.text) > 0 {
			if err := c.recordDownload(v, rec, name, ""); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// readOutput reads at most most bytes from an offset of a stream on.
func (c *Console) readOutput(v *visit, rec audit.Record, name string, from, most int64) (stream, error) {
	s := stream{execID: rec.ExecID, name: name, from: from, written: rec.StdoutBytes}
	if name == "stderr" {
		s.written = rec.StderrBytes
	}
	f, size, err := c.cfg.Runner.OpenOutput(v.ctx(), rec, name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	s.size = size
	if s.done, s.lost = rec.Status.Final(), rec.Status == audit.Lost; !s.done {
		s.written = max(s.written, size)
	}
	if err := v.door.Reserve(outputPrice * min(most, max(0, size-from))); err != nil {
		return s, err
	}
	if most == 0 {
		return s, nil
	}
	if s.before, _, err = skip(v.ctx(), f, size, from); err != nil {
		return s, err
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return s, err
	}
	if s.text, err = io.ReadAll(io.LimitReader(f, most)); err != nil {
		return s, err
	}
	now := s.before
	s.text = s.text[:now.Skip(s.text, s.done && s.end() == size)]
	return s, nil
}

// outputPage shows a part of a stream of output.
func (c *Console) outputPage(v *visit) (ui.Page, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	name, err := v.streamName()
	if err != nil {
		return ui.Page{}, err
	}
	from := int64(0)
	if text := v.query.Get("from"); text != "" {
		if from, err = strconv.ParseInt(text, 10, 64); err != nil || from < 0 || from >= outputMost {
			return ui.Page{}, fault.BadField("from", "must be a number of bytes below %d; download the stream to read more", outputMost)
		}
	}
	s, err := c.readOutput(v, rec, name, from, min(outputPart, outputMost-from))
	if from > 0 && from >= s.size && (err == nil || errors.Is(err, io.EOF)) {
		return ui.Page{}, fault.BadField("from", "must be below %d, the number of bytes that this stream has; open the exec to read from the beginning", s.size)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return ui.Page{}, c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	if err := c.recordDownload(v, rec, name, ""); err != nil {
		return ui.Page{}, err
	}
	return ui.Page{
		Title: s.label(), Crumbs: execCrumbs(rec), Body: outputRange(s),
	}, nil
}

// streamName is the stream of output that the address names.
func (v *visit) streamName() (string, error) {
	name := v.Param("stream")
	if name != "stdout" && name != "stderr" {
		return "", fault.New(fault.NotFound, "an exec has the streams stdout and stderr")
	}
	return name, nil
}

// wholeCharacters cuts the beginning of a character or a sequence from the end of a text.
func wholeCharacters(text []byte) []byte { return text[:new(ui.Terminal).Skip(text, false)] }
