package output

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"secbox/runner/lifecycle"
)

// TestOutputLingersForFollowers: those who followed a command can read its last words for a while.
// What no one followed is gone at once.
func TestOutputLingersForFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		commands := lifecycle.New(lifecycle.Config{})
		r := Of(commands)
		for name, c := range map[string]struct {
			follow bool
			after  time.Duration
			stays  bool
		}{"followed": {true, time.Second, true}, "alone": {false, time.Second, false}, "followed, with files": {true, 0, false}} {
			_, command, err := commands.Begin(t.Context(), lifecycle.Command{ExecID: name}, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := New("", InlineBytes, InlineBytes)
			remove := r.Add(name, out, c.after)
			if c.follow {
				if now, err := r.Follow(t.Context(), name, Progress{}); err != nil || now != (Progress{Here: true, Started: true}) {
					t.Errorf("%s: %+v, %v", name, now, err)
				}
			}
			if _, err := io.WriteString(out.Stderr, "last words"); err != nil {
				t.Fatal(err)
			}
			remove()
			commands.End(command)
			if now, err := r.Follow(t.Context(), name, Progress{Here: true, Started: true}); err != nil || now != (Progress{}) {
				t.Errorf("%s, after the end: %+v, %v", name, now, err)
			}
			in, size := r.Open(name, "stderr")
			if stays := in != nil; stays != c.stays || stays && size != 10 {
				t.Errorf("%s: it can be read: %v, %d bytes", name, stays, size)
			}
			time.Sleep(2 * time.Second) // of the bubble's clock
			if in, _ := r.Open(name, "stderr"); in != nil {
				t.Errorf("%s: it can be read much later", name)
			}
		}
	})
}
