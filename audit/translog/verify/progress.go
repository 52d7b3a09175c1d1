package verify

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progressInterval is the time between two lines of progress.
const progressInterval = time.Second

// Progress returns a function for Options.Progress that reports on w if that is a terminal; nil if
// not.
func Progress(w io.Writer) func(Summary) {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	last := time.Now()
	return func(s Summary) {
		if time.Since(last) < progressInterval {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "%d of %d entries read; %d events and %d execs compared, %s\n", s.From+s.Entries, s.Size, s.Events, s.Execs,
			many(s.Differences, "difference"))
	}
}
