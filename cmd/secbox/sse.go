package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// events reads server-sent events and hands on the data of each; it ends with the stream, without an error at its proper end.
func events(r io.Reader, each func(data []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var data []byte
	for {
		line, err := readLine(in, maxMessage)
		if errors.Is(err, io.EOF) {
			return nil // an event without its empty line is not whole
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(data) > 0 {
				if err := each(data); err != nil {
					return err
				}
			}
			data = nil
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if len(data) > 0 {
				data = append(data, '\n')
			}
			if data = append(data, bytes.TrimPrefix(value, []byte(" "))...); len(data) > maxMessage {
				return errTooLong
			}
		}
	}
}
