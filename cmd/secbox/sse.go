package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// events reads server-sent events and passes on the id and the data of each; either may be empty.
// It returns nil at the end of the stream.
func events(r io.Reader, each func(id string, data []byte)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var data []byte
	var id string
	for {
		line, err := readLine(in, maxMessage)
		if errors.Is(err, io.EOF) {
			return nil // an event without its empty line is incomplete
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(data) > 0 || id != "" {
				each(id, data)
			}
			data, id = nil, ""
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("id:")); ok {
			id = string(bytes.TrimPrefix(value, []byte(" ")))
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
