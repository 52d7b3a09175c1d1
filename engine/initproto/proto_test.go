package initproto_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"secbox/engine/initproto"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var stream []byte
	stream = initproto.Append(stream, initproto.TypeHello, []byte(initproto.Magic))
	stream = initproto.Append(stream, initproto.TypeStdout, bytes.Repeat([]byte("x"), initproto.MaxChunk))
	stream = initproto.Append(stream, initproto.TypeCredit, nil)
	stream, err := initproto.AppendJSON(stream, initproto.TypeExit, initproto.Exit{Code: 137, Signal: 9, OOMKills: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := initproto.NewReader(iotest.OneByteReader(bytes.NewReader(stream)), initproto.FromInit)
	for _, want := range []struct {
		t    initproto.Type
		size int
	}{{initproto.TypeHello, len(initproto.Magic)}, {initproto.TypeStdout, initproto.MaxChunk}, {initproto.TypeCredit, 0}} {
		got, payload, err := r.Next()
		if err != nil || got != want.t || len(payload) != want.size {
			t.Fatalf("%q with %d bytes, %v", got, len(payload), err)
		}
	}
	_, payload, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := initproto.DecodeExit(payload); err != nil || exit.Code != 137 || exit.OOMKills != 1 {
		t.Fatalf("%+v %v", exit, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	header := func(t byte, size uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{t}, size)
	}
	for name, c := range map[string]struct {
		dir    initproto.Direction
		stream []byte
		want   error
	}{
		"an engine's words":        {initproto.FromInit, []byte("docker: Error response from daemon"), initproto.ErrProtocol},
		"the other direction":      {initproto.FromInit, header('J', 2), initproto.ErrProtocol},
		"output to init":           {initproto.ToInit, header('o', 2), initproto.ErrProtocol},
		"too long a chunk":         {initproto.FromInit, header('o', initproto.MaxChunk+1), initproto.ErrProtocol},
		"too long a job":           {initproto.ToInit, header('J', initproto.MaxJob+1), initproto.ErrProtocol},
		"4 GiB":                    {initproto.FromInit, header('x', 1<<32-1), initproto.ErrProtocol},
		"a kill with a payload":    {initproto.ToInit, header('K', 1), initproto.ErrProtocol},
		"cut in the header":        {initproto.FromInit, []byte("o\x00\x00"), io.ErrUnexpectedEOF},
		"cut in the payload":       {initproto.FromInit, append(header('o', 4), 'x'), io.ErrUnexpectedEOF},
		"cut right after a header": {initproto.FromInit, header('o', 4), io.ErrUnexpectedEOF},
		"nothing":                  {initproto.FromInit, nil, io.EOF},
		"a job that is announced":  {initproto.ToInit, header('J', initproto.MaxJob), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := initproto.NewReader(bytes.NewReader(c.stream), c.dir).Next(); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestDecodeRefusesImpossibleValues(t *testing.T) {
	t.Parallel()
	for _, job := range []string{``, `{}`, `{"argv":[""]}`, `{"argv":["x"],"timeout_ms":-1}`, `{"argv":["x"],"max_stdout":-1}`, `{"argv":7}`} {
		if _, err := initproto.DecodeJob([]byte(job)); !errors.Is(err, initproto.ErrProtocol) {
			t.Errorf("job %s: %v", job, err)
		}
	}
	for _, exit := range []string{``, `[]`, `{"code":256}`, `{"code":-1}`, `{"signal":200}`, `{"stdout_bytes":-1}`, `{"oom_kills":-5}`} {
		if _, err := initproto.DecodeExit([]byte(exit)); !errors.Is(err, initproto.ErrProtocol) {
			t.Errorf("exit %s: %v", exit, err)
		}
	}
	for _, usage := range []string{``, `[]`, `{"cpu_us":-1}`, `{"elapsed_us":-1}`, `{"memory_bytes":-1}`, `{"cpu_us":9000000000000000000}`} {
		if _, err := initproto.DecodeUsage([]byte(usage)); !errors.Is(err, initproto.ErrProtocol) {
			t.Errorf("usage %s: %v", usage, err)
		}
	}
	for _, unlinked := range []string{``, `[]`, `{"bytes":-1}`, `{"bytes":"1"}`} {
		if _, err := initproto.DecodeUnlinked([]byte(unlinked)); !errors.Is(err, initproto.ErrProtocol) {
			t.Errorf("unlinked %s: %v", unlinked, err)
		}
	}
}

// FuzzReader checks both decoders: no stream makes them panic, return more than a type's bound, or
// loop.
func FuzzReader(f *testing.F) {
	f.Add(true, initproto.Append(nil, initproto.TypeJob, []byte(`{"argv":["bash"]}`)))
	f.Add(false, initproto.Append(initproto.Append(nil, initproto.TypeHello, []byte(initproto.Magic)), initproto.TypeExit, []byte(`{"code":0}`)))
	f.Add(false, []byte("docker: Error response from daemon: conflict."))
	f.Add(true, []byte{'K', 0, 0, 0, 0, 'E', 0, 0, 0, 0, 'I', 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, toInit bool, stream []byte) {
		dir := initproto.FromInit
		if toInit {
			dir = initproto.ToInit
		}
		r := initproto.NewReader(bytes.NewReader(stream), dir)
		read := 0
		for {
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
			switch kind {
			case initproto.TypeJob:
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
