package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os/exec"
	"sync"
	"time"
)

// The sides of the section Sandboxes are processes of their own, so that what each of them holds is seen: `core-api bench side NAME`. They
// are told what to do over their standard input and output, and end when the input does.
const (
	HubSide    = "hub"    // core-api's end of a runner's link
	RunnerSide = "runner" // the runner
	DockerSide = "docker" // the docker sandbox; whoever calls ServeSide brings it
)

// sideService is what the methods of a side are called by.
const sideService = "Side"

// ServeSide is a side: it serves until in ends. own is the side that bench does not make itself.
func ServeSide(name string, in io.ReadCloser, out io.WriteCloser, own *DockerTasks) error {
	var tasks io.Closer
	switch {
	case name == HubSide:
		tasks = &HubTasks{}
	case name == RunnerSide:
		tasks = &RunnerTasks{}
	case name == DockerSide && own != nil:
		tasks = own
	default:
		return fmt.Errorf("there is no side %q", name)
	}
	server := rpc.NewServer()
	if err := server.RegisterName(sideService, tasks); err != nil {
		return errors.Join(err, tasks.Close())
	}
	server.ServeConn(duplex{in, out})
	return tasks.Close()
}

// duplex is a connection of two pipes.
type duplex struct {
	io.ReadCloser
	out io.WriteCloser
}

func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }
func (d duplex) Close() error                { return errors.Join(d.out.Close(), d.ReadCloser.Close()) }

// side is such a process as the bench holds it.
type side struct {
	name   string
	cmd    *exec.Cmd
	client *rpc.Client
	log    tail
	ended  chan struct{}
}

// startSide starts the server's program as a side. args are more flags.
func startSide(o Options, name string, args ...string) (*side, error) {
	s := &side{name: name, cmd: exec.Command(o.Server[0], append([]string{"bench", "side", name}, args...)...), ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Stderr = withoutSettings(o.Environ), &s.log
	tie(s.cmd)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the side %s cannot be started: %w", name, err)
	}
	s.client = rpc.NewClient(duplex{out, in})
	return s, nil
}

func (s *side) pid() int { return s.cmd.Process.Pid }

// do has the side do a task, and returns what it measured.
func do[R any](ctx context.Context, s *side, task string, args any) (r R, err error) {
	call := s.client.Go(sideService+"."+task, args, &r, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return r, because(ctx, fmt.Errorf("%s of %s: %w\n%s", task, s.name, call.Error, s.log.String()))
		}
		return r, nil
	case <-ctx.Done():
		var none R
		return none, context.Cause(ctx)
	}
}

// stop ends the side and waits for it; by force when it does not end.
func (s *side) stop() error {
	go func() {
		_ = s.client.Close()
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopPatience):
		_ = s.cmd.Process.Kill()
		<-s.ended
		return fmt.Errorf("the side %s did not end within %v and was killed:\n%s", s.name, stopPatience, s.log.String())
	}
}

// tail keeps the end of what is written.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
