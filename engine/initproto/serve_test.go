package initproto_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"secbox/engine/initproto"
)

func TestServeFrames(t *testing.T) {
	t.Parallel()
	stream := initproto.Append(nil, initproto.TypeHello, []byte(initproto.MagicServe))
	stream = initproto.AppendID(stream, initproto.TypeStdout, 7, bytes.Repeat([]byte("x"), initproto.MaxChunk))
	stream = initproto.AppendID(stream, initproto.TypeBusy, 1<<32-1, nil)
	stream, err := initproto.AppendIDJSON(stream, initproto.TypeExit, 7, initproto.Exit{Code: 3, NoDir: true})
	if err != nil {
		t.Fatal(err)
	}
	r := initproto.NewReader(bytes.NewReader(stream), initproto.FromServe)
	if kind, payload, err := r.Next(); err != nil || kind != initproto.TypeHello || string(payload) != initproto.MagicServe {
		t.Fatalf("%q %q %v", kind, payload, err)
	}
	for _, want := range []struct {
		kind initproto.Type
		id   uint32
		size int
	}{{initproto.TypeStdout, 7, initproto.MaxChunk}, {initproto.TypeBusy, 1<<32 - 1, 0}} {
		kind, payload, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		id, rest, err := initproto.SplitID(payload)
		if err != nil || kind != want.kind || id != want.id || len(rest) != want.size {
			t.Errorf("%q of %d with %d bytes, %v", kind, id, len(rest), err)
		}
	}
	_, payload, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, err := initproto.SplitID(payload)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := initproto.DecodeExit(rest); err != nil || exit.Code != 3 || !exit.NoDir {
		t.Errorf("%+v %v", exit, err)
	}
}

func TestDirectionsRefuseOtherFrames(t *testing.T) {
	t.Parallel()
	header := func(t initproto.Type, size uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{byte(t)}, size)
	}
	for name, c := range map[string]struct {
		dir    initproto.Direction
		stream []byte
		want   error
	}{
		"a job for one who serves many": {initproto.ToServe, header(initproto.TypeJob, 2), initproto.ErrProtocol},
		"a start for a single job":      {initproto.ToInit, header(initproto.TypeStart, 6), initproto.ErrProtocol},
		"a rehearsal for a worker":      {initproto.ToWorker, header(initproto.TypeRehearse, 0), initproto.ErrProtocol},
		"a grant to a worker":           {initproto.ToWorker, header(initproto.TypeGrant, 4), initproto.ErrProtocol},
		"busy from a worker":            {initproto.FromWorker, header(initproto.TypeBusy, 4), initproto.ErrProtocol},
		"too long a chunk":              {initproto.FromServe, header(initproto.TypeStdout, initproto.MaxChunk+5), initproto.ErrProtocol},
		"a grant with more than an id":  {initproto.ToServe, header(initproto.TypeGrant, 5), initproto.ErrProtocol},
		"too long a start":              {initproto.ToServe, header(initproto.TypeStart, initproto.MaxJob+5), initproto.ErrProtocol},
		"an engine's words":             {initproto.FromServe, []byte("docker: Error response"), initproto.ErrProtocol},
		"a kill that is cut":            {initproto.ToServe, append(header(initproto.TypeKill, 4), 0, 0), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := initproto.NewReader(bytes.NewReader(c.stream), c.dir).Next(); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
	if _, _, err := initproto.SplitID([]byte{0, 0, 1}); !errors.Is(err, initproto.ErrProtocol) {
		t.Errorf("a frame without an id: %v", err)
	}
}

// FuzzServe is FuzzReader for the protocols of workers and of --serve.
func FuzzServe(f *testing.F) {
	f.Fuzz(func(t *testing.T, which byte, stream []byte) {
		dirs := []initproto.Direction{initproto.ToServe, initproto.FromServe, initproto.ToWorker, initproto.FromWorker}
		dir := dirs[int(which)%len(dirs)]
		serve := dir == initproto.ToServe || dir == initproto.FromServe
		r := initproto.NewReader(bytes.NewReader(stream), dir)
		for read := 0; ; {
			kind, payload, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, initproto.ErrProtocol) {
					t.Fatalf("an error of another kind: %v", err)
				}
				return
			}
			read += 5 + len(payload)
			if read > len(stream) {
				t.Fatal("more was handed out than came in")
			}
			if serve && kind != initproto.TypeHello {
				id, rest, err := initproto.SplitID(payload)
				if err != nil {
					return
				}
				if again := initproto.AppendID(nil, kind, id, rest); !bytes.Equal(again, stream[read-len(again):read]) {
					t.Fatalf("%q was read from %q", again, stream)
				}
				payload = rest
			}
			switch kind {
			case initproto.TypeJob, initproto.TypeStart:
				if job, err := initproto.DecodeJob(payload); err == nil && (len(job.Argv) == 0 || job.TimeoutMS < 0) {
					t.Fatalf("accepted %+v", job)
				}
			case initproto.TypeExit:
				if exit, err := initproto.DecodeExit(payload); err == nil && (exit.Code < 0 || exit.Code > 255) {
					t.Fatalf("accepted %+v", exit)
				}
			}
		}
	})
}
