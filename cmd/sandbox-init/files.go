//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"

	"secbox/engine/initproto"
	"secbox/engine/transfer"
	"secbox/engine/worker"
)

// files are the directories of the job, if they came over the stream.
type files struct {
	unpacked *transfer.Unpacked
	err      error // why they are not there
}

// takeFiles unpacks the stream of files that begins with a chunk. An error is about the frames.
func takeFiles(first []byte, frames *initproto.Reader) (*files, error) {
	stream := initproto.NewFilesReader(first, frames)
	f := &files{}
	f.unpacked, f.err = transfer.Unpack(stream)
	_, err := io.Copy(io.Discard, stream) // what is left after an error
	return f, err
}

// ready returns why a job cannot run that says files came, or that they did not.
func (f *files) ready(spec initproto.Job) error {
	switch {
	case f == nil && spec.Files == nil:
		return nil
	case f == nil || spec.Files == nil:
		return errors.New("its files are missing")
	case f.err != nil:
		return fmt.Errorf("its files cannot be written in the container: %w", f.err)
	}
	return nil
}

// sendChanges sends what changed. No process of the job may be alive.
func (f *files) sendChanges(l *worker.Link, spec initproto.Job) error {
	if f == nil {
		return nil
	}
	send := func(chunk []byte) error { return l.Send(initproto.TypeChanges, chunk) }
	if err := send(nil); err != nil {
		return err
	}
	return f.unpacked.Changes(initproto.ChunkWriter(send), transfer.Bounds(*spec.Files))
}
