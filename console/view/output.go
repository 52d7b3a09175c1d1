package view

import "secbox/console/ui"

// MaxOutput is how many bytes of a stream pages show; the rest is downloaded.
const MaxOutput = 1 << 20

// Stream is a part of a stream of output.
type Stream struct {
	ExecID, Name string
	From         int64
	Text         []byte
	Terminal     ui.Terminal // before Text
	Size         int64       // of what was kept
	Written      int64       // by the job
	Done         bool        // it does not grow any longer
	Problem      string
	Live         bool // it grows, or a live page has all that is before from
	Elsewhere    bool // it can be read when the exec has ended
	Lost         bool // the exec's end was never reported
	Unstored     bool // the command ran in a sandbox: its caller gets the output
}

// next is where the next part begins; 0 if pages show no more.
func (s Stream) next() int64 {
	if end := s.End(); end < min(s.Size, MaxOutput) && (len(s.Text) > 0 && !s.Live || s.Live && s.Done) {
		return end
	}
	return 0
}

// End is where the part ends.
func (s Stream) End() int64 { return s.From + int64(len(s.Text)) }

// silent reports whether a stream that has ended is empty.
func (s Stream) silent() bool {
	return !s.Live && s.Written == 0 && !s.Unstored && !s.Lost && s.Problem == ""
}

// cut is how many bytes were not kept.
func (s Stream) cut() int64 {
	if !s.Done || s.Lost || s.Unstored {
		return 0
	}
	return max(0, s.Written-s.Size)
}

// Label is the name of the stream for readers.
func (s Stream) Label() string {
	if s.Name == "stderr" {
		return "Standard error"
	}
	return "Standard output"
}

// otherStream is the exec's stream beside this one.
func otherStream(s Stream) Stream {
	if s.Name == "stderr" {
		return Stream{Name: "stdout"}
	}
	return Stream{Name: "stderr"}
}

// TrimIncomplete cuts the beginning of a character or a sequence from the end of a text.
func TrimIncomplete(text []byte) []byte { return text[:new(ui.Terminal).Skip(text, false)] }
