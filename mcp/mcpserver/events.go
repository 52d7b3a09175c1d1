package mcpserver

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of the events that are kept for one session. A result of a skill has at most 32 KiB.
const (
	maxEventBytes   = 128 << 10
	eventOverhead   = 64  // bytes that an event takes beside its message
	maxEventStreams = 256 // a stream is the answer to one request
)

// events keeps the latest messages of each session's streams, so that a client whose connection
// broke gets the rest with Last-Event-ID. A session shares its bounds with no other: the oldest
// events make room. It implements the SDK's interface, in place of its store in memory, which never
// forgets a stream of a session, and lets one client's messages displace all others.
type events struct {
	mu       sync.Mutex
	sessions map[string]*sessionEvents
}

var _ mcp.EventStore = (*events)(nil)

type sessionEvents struct {
	streams map[string]*streamEvents // by id
	opened  []string                 // ids, oldest first, without the session's own stream
	kept    []*streamEvents          // the stream of each event, oldest first
	bytes   int
}

type streamEvents struct {
	first int // the index of the first message that is kept
	data  [][]byte
}

// ownStream is the id of the stream that belongs to no request. It is the first that is opened. Its
// only message says that the tools have changed, and the latest message replaces the messages
// before it.
const ownStream = ""

// Open implements mcp.EventStore. A session that has ended is not opened again by a request that is
// late.
func (e *events) Open(_ context.Context, sessionID, streamID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[sessionID]
	switch {
	case s == nil && streamID != ownStream:
		return nil
	case s == nil:
		s = &sessionEvents{streams: map[string]*streamEvents{}}
		e.sessions[sessionID] = s
	default:
		if s.opened = append(s.opened, streamID); len(s.opened) > maxEventStreams {
			s.forget(s.opened[0])
			s.opened = s.opened[1:]
		}
	}
	s.streams[streamID] = &streamEvents{}
	return nil
}

// Append implements mcp.EventStore. It ignores streams that are forgotten.
func (e *events) Append(_ context.Context, sessionID, streamID string, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[sessionID]
	if s == nil || s.streams[streamID] == nil {
		return nil
	}
	stream := s.streams[streamID]
	if streamID == ownStream {
		stream.first += len(stream.data)
		stream.data = [][]byte{data}
		return nil
	}
	stream.data = append(stream.data, data)
	s.kept = append(s.kept, stream)
	for s.bytes += len(data) + eventOverhead; s.bytes > maxEventBytes; s.kept = s.kept[1:] {
		oldest := s.kept[0]
		s.bytes -= len(oldest.data[0]) + eventOverhead
		oldest.data[0], s.kept[0] = nil, nil // for the garbage collector
		oldest.data = oldest.data[1:]
		oldest.first++
	}
	return nil
}

func (s *sessionEvents) forget(streamID string) {
	stream := s.streams[streamID]
	delete(s.streams, streamID)
	for _, data := range stream.data {
		s.bytes -= len(data) + eventOverhead
	}
	s.kept = slices.DeleteFunc(s.kept, func(of *streamEvents) bool { return of == stream })
}

// After implements mcp.EventStore.
func (e *events) After(_ context.Context, sessionID, streamID string, index int) iter.Seq2[[]byte, error] {
	missed, err := e.after(sessionID, streamID, index)
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, data := range missed {
			if !yield(data, nil) {
				return
			}
		}
	}
}

func (e *events) after(sessionID, streamID string, index int) ([][]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[sessionID]
	if s == nil || s.streams[streamID] == nil {
		return nil, fmt.Errorf("stream %q of session %q: %w", streamID, sessionID, mcp.ErrEventsPurged)
	}
	stream := s.streams[streamID]
	begin := index + 1 - stream.first
	if streamID == ownStream {
		begin = max(begin, 0)
	}
	if begin < 0 {
		return nil, fmt.Errorf("events after %d of stream %q of session %q: %w", index, streamID, sessionID, mcp.ErrEventsPurged)
	}
	return slices.Clone(stream.data[min(begin, len(stream.data)):]), nil
}

// SessionClosed implements mcp.EventStore.
func (e *events) SessionClosed(_ context.Context, sessionID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, sessionID)
	return nil
}
