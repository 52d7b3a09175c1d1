package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// streams are the pipes to and from a command.
type streams struct {
	ofCommand      [3]*os.File // the command's ends
	stdin          *os.File    // ours; nil without input
	stdout, stderr *pump
	busy           sync.WaitGroup
	input          io.Reader
}

// connect makes the pipes. The caller must close them.
func connect(spec Spec) (_ *streams, err error) {
	s := &streams{input: spec.Stdin}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if spec.Stdin == nil {
		s.ofCommand[0], err = os.Open(os.DevNull)
	} else {
		s.ofCommand[0], s.stdin, err = os.Pipe()
	}
	if err != nil {
		return nil, err
	}
	if s.stdout, s.ofCommand[1], err = newPump(spec.Stdout, spec.MaxStdout); err != nil {
		return nil, err
	}
	s.stderr, s.ofCommand[2], err = newPump(spec.Stderr, spec.MaxStderr)
	return s, err
}

// started closes the command's ends, which the command has inherited, and starts to copy.
func (s *streams) started() {
	for i, f := range s.ofCommand {
		f.Close()
		s.ofCommand[i] = nil
	}
	if s.stdin != nil {
		stdin, input := s.stdin, s.input
		go func() { // not one of busy: a Read may outlive the command
			// Commands need not read all of their input.
			_, _ = io.Copy(stdin, input)
			_ = stdin.Close()
		}()
	}
	s.busy.Go(s.stdout.run)
	s.busy.Go(s.stderr.run)
}

// drain copies the rest after all processes of the command are dead.
func (s *streams) drain() (stdout, stderr int64) {
	if s.stdin != nil {
		_ = s.stdin.Close()
	}
	s.stdout.commandIsDead()
	s.stderr.commandIsDead()
	s.busy.Wait()
	return s.stdout.seen, s.stderr.seen
}

func (s *streams) close() {
	for _, f := range s.ofCommand {
		if f != nil {
			f.Close()
		}
	}
	if s.stdin != nil {
		s.stdin.Close()
	}
	for _, p := range []*pump{s.stdout, s.stderr} {
		if p != nil {
			p.from.Close()
		}
	}
	s.busy.Wait()
}

// pump copies one stream of a command's output.
type pump struct {
	from *os.File
	to   io.Writer // nil once it failed
	left int64     // bytes that it may still get
	seen int64
	dead atomic.Bool // the command is dead
}

// pumpBytes is the capacity of a pipe on Linux.
const pumpBytes = 64 << 10

func newPump(to io.Writer, most int64) (*pump, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &pump{from: r, to: to, left: most}, w, nil
}

// lastWait is how long to wait for the end of a stream after the command's death: an escaped
// process may hold the pipe open.
const lastWait = time.Second

func (p *pump) run() {
	buf := make([]byte, pumpBytes)
	for {
		dead := p.dead.Load()
		if dead {
			_ = p.from.SetReadDeadline(time.Now().Add(lastWait))
		}
		n, err := p.from.Read(buf)
		p.seen += int64(n)
		if give := min(int64(n), p.left); give > 0 && p.to != nil {
			p.left -= give
			if _, err := p.to.Write(buf[:give]); err != nil {
				p.to = nil
			}
		}
		if err != nil && (dead || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return
		}
	}
}

// commandIsDead lets the pump end even if the pipe stays open.
func (p *pump) commandIsDead() {
	p.dead.Store(true)
	_ = p.from.SetReadDeadline(time.Now().Add(lastWait))
}
