package inflight

import (
	"net/http"
	"time"
)

// minRate is how fast clients must send bodies and read answers, in bytes per second. Beside that a
// client may pause for a total of rest; time at a higher rate earns the pause back.
const minRate = 16 << 10

// pace computes deadlines. Only the time that is spent waiting for the client counts.
type pace struct {
	rest  time.Duration // at most
	left  time.Duration // of rest
	began time.Time
}

func newPace(rest time.Duration) pace { return pace{rest: rest, left: rest} }

// begin returns the deadline for moving so many more bytes.
func (p *pace) begin(bytes int) time.Time {
	p.began = time.Now()
	return p.began.Add(p.left + timeFor(bytes))
}

// end counts the bytes that moved since begin.
func (p *pace) end(bytes int) { p.left = min(p.rest, p.left+timeFor(bytes)-time.Since(p.began)) }

func timeFor(bytes int) time.Duration { return time.Duration(bytes) * time.Second / minRate }

// pieceBytes is how much of an answer is written under one deadline. Larger writes count as memory
// while they last.
const pieceBytes = 64 << 10

// minRateWriter writes an answer that the client must read at minRate.
type minRateWriter struct {
	http.ResponseWriter
	conn   *http.ResponseController
	pace   pace
	memory *Reservation
	valid  func() error
}

// NewWriter wraps w; the client must read the answer at a minimum rate, beside pauses of rest in
// total. An error of valid, which is called before each piece, ends the answer.
func NewWriter(w http.ResponseWriter, memory *Reservation, valid func() error, rest time.Duration) http.ResponseWriter {
	return &minRateWriter{ResponseWriter: w, conn: http.NewResponseController(w), memory: memory, valid: valid, pace: newPace(rest)}
}

func (w *minRateWriter) Write(b []byte) (written int, err error) {
	if len(b) > pieceBytes {
		w.memory.Force(int64(len(b)))
		defer w.memory.Force(-int64(len(b)))
	}
	for {
		if err := w.valid(); err != nil {
			return written, err
		}
		piece := b[written:min(len(b), written+pieceBytes)]
		_ = w.conn.SetWriteDeadline(w.pace.begin(len(piece))) // fails only in tests, without a connection
		n, err := w.ResponseWriter.Write(piece)
		w.pace.end(n)
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *minRateWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
