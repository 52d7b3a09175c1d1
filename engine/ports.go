package engine

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"secbox/engine/initproto"
	"secbox/fault"
)

// Ports connects to servers on the loopback of a container. It is safe for concurrent use.
type Ports struct{ open func() (net.Conn, error) }

// portTimeout is how long sandbox-init may take to dial, which it gives five seconds for each of
// two addresses.
const portTimeout = 15 * time.Second

// Dial connects to a port. The caller must close the connection. It fails with
// fault.UpstreamFailed if no server there accepts it.
func (p Ports) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	stream, err := p.open()
	if err != nil {
		return nil, err
	}
	_ = stream.SetDeadline(time.Now().Add(portTimeout))
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	var said [1]byte
	if _, err = stream.Write(binary.BigEndian.AppendUint16(nil, port)); err == nil {
		_, err = io.ReadFull(stream, said[:])
	}
	switch {
	case !stop():
		err = context.Cause(ctx)
	case err != nil:
	case said[0] == initproto.PortRefused:
		err = fault.New(fault.UpstreamFailed, "nothing listens on port %d in the session; start a server on its 127.0.0.1, or wait until it has "+
			"started", port)
	case said[0] != initproto.PortOpen:
		err = fault.New(fault.UpstreamFailed, "the server on port %d in the session accepts no connection", port)
	}
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	_ = stream.SetDeadline(time.Time{})
	return stream, nil
}

// ServePorts calls open when the container takes connections to ports, unless its sandbox-init is
// too old. It returns at the end of ctx, or of the container, with all connections ended. open must
// not block. Errors are as Run's.
func (r *Resident) ServePorts(ctx context.Context, open func(Ports)) error {
	// an older sandbox-init runs a program that ends at once
	job := Job{Argv: []string{InitPath, "--version"}, Cwd: "/", ports: open}
	_, err := r.Run(ctx, job, io.Discard, io.Discard)
	return err
}
