package transfer_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"testing"
	"time"

	"secbox/engine/transfer"
)

// BenchmarkTransfer sends a project to a container over a pipe, and receives it back whole.
func BenchmarkTransfer(b *testing.B) {
	for name, c := range map[string]struct{ files, size int }{"1000x10KiB": {1000, 10 << 10}, "1x1GiB": {1, 1 << 30}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(c.files * c.size))
			content := make([]byte, c.size)
			_, _ = rand.Read(content)
			var there time.Duration
			for range b.N {
				b.StopTimer()
				e := newEnds(b)
				for i := range c.files {
					e.put(fmt.Sprintf("work/%d/%d", i%10, i), string(content))
				}
				b.StartTimer()
				begun := time.Now()
				in, out, err := os.Pipe()
				must(b, err)
				go func() {
					_, err := transfer.Send(out, e.dirs, wide)
					out.Close()
					if err != nil {
						b.Error(err)
					}
				}()
				u, err := transfer.Unpack(in)
				must(b, err)
				in.Close()
				there += time.Since(begun)
				b.StopTimer()
				for i := range c.files {
					now := e.container + fmt.Sprintf("/work/%d/%d", i%10, i)
					must(b, os.Chmod(now, 0o755)) // changes it
				}
				b.StartTimer()
				in, out, err = os.Pipe()
				must(b, err)
				go func() {
					err := u.Changes(out, wide)
					out.Close()
					if err != nil {
						b.Error(err)
					}
				}()
				_, err = transfer.Receive(in, e.dirs, wide, transfer.Owner{UID: 1000, GID: 1000})
				must(b, err)
				in.Close()
			}
			b.ReportMetric(float64(there.Milliseconds())/float64(b.N), "ms-there/op")
		})
	}
}
