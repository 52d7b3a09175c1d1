package api

import (
	"context"
	"encoding/json"
	"net/http"

	"secbox/api/problem"
	"secbox/api/sse"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/internal/names"
	"secbox/sandbox/places"
)

// watchedEvents is how many events wait for a client. Further ones wait in the container, where the
// kernel drops what is too much, and says so.
const watchedEvents = 256

// WatchSessionFiles streams changes in a directory of a session.
func (s *Server) WatchSessionFiles(ctx context.Context, in wire.WatchSessionFilesRequestObject) (
	wire.WatchSessionFilesResponseObject, error,
) {
	all := value(in.Params.Recursive)
	if all != "" && all != "true" && all != "false" {
		return nil, fault.BadField("recursive", "is %q; allowed are true and false", problem.Clip(all))
	}
	p, away, err := s.sessionPlace(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	call := callFrom(ctx)
	within, cancel := context.WithCancel(call.request.Context())
	w := fileWatch{events: make(chan places.Event, watchedEvents), wake: make(chan struct{}, 1), path: in.Params.Path}
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(w.events)
		ended <- p.Files.(places.Session).Watch(within, in.Params.Path, all == "true", func() { close(begun) }, func(e places.Event) error {
			select {
			case w.events <- e:
			case <-within.Done():
				return within.Err()
			}
			w.notify()
			return nil
		})
		w.notify()
	}()
	select {
	case err := <-ended:
		cancel()
		if err == nil {
			err = fault.New(fault.UnknownFile, "the directory was removed")
		}
		return nil, places.Fault(err)
	case <-begun:
	}
	send := s.stream(call, func(ctx context.Context, out *sse.Stream, _ http.ResponseWriter) error { return w.send(ctx, out) })
	return nil, call.answer(func(rw http.ResponseWriter) error {
		defer cancel()
		return send(rw)
	})
}

// fileWatch is one client that follows the changes in a directory.
type fileWatch struct {
	events chan places.Event // closed at the end
	wake   chan struct{}
	path   string
}

func (w fileWatch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// send sends events until there are no more, or the stream must end.
func (w fileWatch) send(ctx context.Context, out *sse.Stream) error {
	if err := event(out, "watching", wire.FileEvent{Path: w.path, Directory: true}); err != nil {
		return err
	}
	for {
		for more := true; more; {
			select {
			case e, open := <-w.events:
				if !open {
					return out.Flush()
				}
				if err := event(out, e.Kind, wire.FileEvent{Path: names.Shown(e.Path), Directory: e.Dir}); err != nil {
					return err
				}
			default:
				more = false
			}
		}
		if more, err := out.Wait(ctx, w.wake, streamPause); !more {
			return err
		}
	}
}

func event(out *sse.Stream, name string, data wire.FileEvent) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return out.Event(name, "", text)
}
