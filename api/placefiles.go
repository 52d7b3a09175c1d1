package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"secbox/api/content"
	"secbox/api/gate"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/internal/names"
	"secbox/packages/library"
	"secbox/sandbox"
	"secbox/sandbox/places"
)

// place is a session or a project whose files a request is about.
type place struct {
	places.Files
	of   sandbox.Place
	user sandbox.User // of a user's workspace
}

// projectPlace returns a project that the token may use. It is made if create is set.
func (s *Server) projectPlace(ctx context.Context, id string, create bool) (place, error) {
	if err := gate.CheckProject(callFrom(ctx).caller, id, "", ""); err != nil {
		return place{}, err
	}
	files, err := s.cfg.Projects.Files(id, create)
	return placeOf(files, sandbox.Place{ProjectID: id}), err
}

// sessionPlace returns a session that the token may see. If another node runs it, away is set, and
// the answer is the other node's, to a request without a body unless forward says otherwise.
func (s *Server) sessionPlace(ctx context.Context, id string, forward func(call *call, nodeID string) raw) (p place, away bool, err error) {
	rec, away, err := s.sessionHere(ctx, id, forward)
	if away || err != nil {
		return place{}, away, err
	}
	return placeOf(places.Session{In: s.cfg.Runner.Inside(rec.ExecID)}, placeOfSession(rec)), false, nil
}

func placeOfSession(rec audit.Record) sandbox.Place {
	return sandbox.Place{ProjectID: rec.ProjectID, SessionID: rec.ExecID, ConversationID: rec.ConversationID, TaskID: rec.TaskID}
}

func placeOf(files places.Files, of sandbox.Place) place {
	p := place{Files: files, of: of}
	if agent, user, ok := strings.Cut(of.ProjectID, "~"); ok {
		p.user = sandbox.User{AgentID: agent, ID: user}
	}
	return p
}

// forwardedBody is forward for an operation whose body was not read.
func (s *Server) forwardedBody(call *call, nodeID string) raw {
	return func(w http.ResponseWriter) error { return s.forward(call, w, call.request, nodeID) }
}

// changeIn makes a change in a place on record, as changeFile does; see there.
func (s *Server) changeIn(ctx context.Context, p place, operation, name string, args []string, known sandbox.Digests,
	do func(context.Context) (library.Digests, error),
) (execID string, err error) {
	call := callFrom(ctx)
	ctx = sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: call.caller.ID})
	change := sandbox.Change{User: p.user, In: p.of, Tool: operation, Path: names.Shown(name), Args: args, Digests: known}
	return s.cfg.Sandboxes.Change(ctx, change, func(ctx context.Context, _ sandbox.Location) (sandbox.Digests, error) {
		if call.body != nil {
			defer call.body.EndWith(ctx)()
		}
		digests, err := do(ctx)
		return sandbox.Digests{Before: digests.Before, After: digests.After, Size: digests.Size}, places.Fault(err)
	})
}

// Entries of a directory in one answer.
const (
	defaultEntries = 200
	maxEntries     = 1000
	entryPrice     = 1 << 10 // bytes of memory for each
)

func (s *Server) listFiles(ctx context.Context, p place, name string, limitText, cursor *string) (out wire.FileListing, err error) {
	var bad fault.Fields
	limit := defaultEntries
	if text := value(limitText); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 || limit > maxEntries {
			bad.Add("limit", "must be a number from 0 to %d", maxEntries)
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(value(cursor))
	if err != nil {
		bad.Add("cursor", "is not the next_cursor of a list of files")
	}
	if err := bad.Err(); err != nil {
		return out, err
	}
	if err := callFrom(ctx).reserve(int64(limit) * entryPrice); err != nil {
		return out, err
	}
	l, err := p.List(ctx, name, string(after), limit)
	if err != nil {
		return out, places.Fault(err)
	}
	out = wire.FileListing{
		Path: name, Type: fileType(l.Mode), Size: l.Size, Mode: permissions(l.Mode), ModifiedAt: timestamp(l.Modified),
		Entries: make([]wire.FileEntry, len(l.Entries)),
	}
	for i, e := range l.Entries {
		out.Entries[i] = wire.FileEntry{
			Name: names.Shown(e.Name), Type: fileType(e.Mode), Size: e.Size, Mode: permissions(e.Mode), ModifiedAt: timestamp(e.Modified),
		}
	}
	if l.Next != "" {
		out.NextCursor = new(base64.RawURLEncoding.EncodeToString([]byte(l.Next)))
	}
	return out, nil
}

func fileType(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "other"
}

func permissions(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }

func (s *Server) readFile(ctx context.Context, p place, name string) error {
	return s.sendFile(ctx, names.Shown(path.Base(path.Clean(name))), func() ([]byte, error) {
		small, err := p.Read(ctx, name, library.MaxFileBytes, callFrom(ctx).reserve)
		return small, places.Fault(err)
	}, func() (library.Opened, error) {
		opened, err := p.Open(ctx, name)
		return library.Opened(opened), places.Fault(err)
	})
}

// writeFile returns what was written, and its ETag.
func (s *Server) writeFile(ctx context.Context, p place, operation, name string, match, noneMatch *string, body io.Reader) (
	written wire.V1Written, etag, execID string, err error,
) {
	up, ctx, err := s.receive(ctx, match, noneMatch, body)
	if err != nil {
		return written, "", "", err
	}
	defer up.end()
	execID, err = s.changeIn(ctx, p, operation, name, nil, up.known(), func(ctx context.Context) (library.Digests, error) {
		before, err := p.Write(ctx, name, up.body, up.was)
		return up.digests(ctx, before, err)
	})
	if err != nil {
		return written, "", "", err
	}
	return up.written(), content.ETagOf(up.digest), execID, nil
}

func (s *Server) makeDirectory(ctx context.Context, p place, operation, name string) (execID string, err error) {
	return s.changeIn(ctx, p, operation, name, nil, sandbox.Digests{}, func(ctx context.Context) (library.Digests, error) {
		return library.Digests{}, p.MakeDir(ctx, name)
	})
}

func (s *Server) moveFile(ctx context.Context, p place, operation string, body wire.FileMove) (execID string, err error) {
	to := []string{names.Shown(body.To)}
	return s.changeIn(ctx, p, operation, body.Path, to, sandbox.Digests{}, func(ctx context.Context) (library.Digests, error) {
		return library.Digests{}, p.Move(ctx, body.Path, body.To, body.Replace)
	})
}

func (s *Server) removeFile(ctx context.Context, p place, operation, name string, recursive *string) (execID string, err error) {
	all := value(recursive)
	if all != "" && all != "true" && all != "false" {
		return "", fault.BadField("recursive", "is %q; allowed are true and false", problem.Clip(all))
	}
	return s.changeIn(ctx, p, operation, name, nil, sandbox.Digests{}, func(ctx context.Context) (library.Digests, error) {
		d := library.Digests{Before: places.Before(ctx, p, name)}
		return d, p.Remove(ctx, name, all == "true")
	})
}

// ListSessionFiles describes a file of a session, and lists a directory.
func (s *Server) ListSessionFiles(ctx context.Context, in wire.ListSessionFilesRequestObject) (wire.ListSessionFilesResponseObject, error) {
	p, away, err := s.sessionPlace(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	out, err := s.listFiles(ctx, p, in.Params.Path, in.Params.Limit, in.Params.Cursor)
	return wire.ListSessionFiles200JSONResponse(out), err
}

// ReadSessionFile sends a file of a session.
func (s *Server) ReadSessionFile(ctx context.Context, in wire.ReadSessionFileRequestObject) (wire.ReadSessionFileResponseObject, error) {
	p, away, err := s.sessionPlace(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	return nil, s.readFile(ctx, p, in.Params.Path)
}

// WriteSessionFile writes a file of a session.
func (s *Server) WriteSessionFile(ctx context.Context, in wire.WriteSessionFileRequestObject) (wire.WriteSessionFileResponseObject, error) {
	p, away, err := s.sessionPlace(ctx, in.SessionID, s.forwardedBody)
	if away || err != nil {
		return nil, err
	}
	written, etag, execID, err := s.writeFile(ctx, p, "writeSessionFile", in.Params.Path, in.Params.IfMatch, in.Params.IfNoneMatch, in.Body)
	out := wire.WriteSessionFile200JSONResponse{Body: written}
	out.Headers.ETag, out.Headers.XExecID = &etag, &execID
	return out, err
}

// MakeSessionDirectory makes a directory in a session.
func (s *Server) MakeSessionDirectory(ctx context.Context, in wire.MakeSessionDirectoryRequestObject) (
	wire.MakeSessionDirectoryResponseObject, error,
) {
	p, away, err := s.sessionPlace(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	execID, err := s.makeDirectory(ctx, p, "makeSessionDirectory", in.Params.Path)
	return wire.MakeSessionDirectory204Response(done(execID)), err
}

// MoveSessionFile moves a file of a session.
func (s *Server) MoveSessionFile(ctx context.Context, in wire.MoveSessionFileRequestObject) (wire.MoveSessionFileResponseObject, error) {
	p, away, err := s.sessionPlace(ctx, in.SessionID, func(call *call, nodeID string) raw {
		return s.forwardedJSON(call, nodeID, in.Body)
	})
	if away || err != nil {
		return nil, err
	}
	execID, err := s.moveFile(ctx, p, "moveSessionFile", *in.Body)
	return wire.MoveSessionFile204Response(done(execID)), err
}

// RemoveSessionFile removes a file of a session.
func (s *Server) RemoveSessionFile(ctx context.Context, in wire.RemoveSessionFileRequestObject) (
	wire.RemoveSessionFileResponseObject, error,
) {
	p, away, err := s.sessionPlace(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	execID, err := s.removeFile(ctx, p, "removeSessionFile", in.Params.Path, in.Params.Recursive)
	return wire.RemoveSessionFile204Response(done(execID)), err
}

// ListProjectFiles describes a file of a project, and lists a directory.
func (s *Server) ListProjectFiles(ctx context.Context, in wire.ListProjectFilesRequestObject) (wire.ListProjectFilesResponseObject, error) {
	p, err := s.projectPlace(ctx, in.ProjectID, false)
	if err != nil {
		return nil, err
	}
	out, err := s.listFiles(ctx, p, in.Params.Path, in.Params.Limit, in.Params.Cursor)
	return wire.ListProjectFiles200JSONResponse(out), err
}

// ReadProjectFile sends a file of a project.
func (s *Server) ReadProjectFile(ctx context.Context, in wire.ReadProjectFileRequestObject) (wire.ReadProjectFileResponseObject, error) {
	p, err := s.projectPlace(ctx, in.ProjectID, false)
	if err != nil {
		return nil, err
	}
	return nil, s.readFile(ctx, p, in.Params.Path)
}

// WriteProjectFile writes a file of a project.
func (s *Server) WriteProjectFile(ctx context.Context, in wire.WriteProjectFileRequestObject) (wire.WriteProjectFileResponseObject, error) {
	p, err := s.projectPlace(ctx, in.ProjectID, true)
	if err != nil {
		return nil, err
	}
	written, etag, execID, err := s.writeFile(ctx, p, "writeProjectFile", in.Params.Path, in.Params.IfMatch, in.Params.IfNoneMatch, in.Body)
	out := wire.WriteProjectFile200JSONResponse{Body: written}
	out.Headers.ETag, out.Headers.XExecID = &etag, &execID
	return out, err
}

// MakeProjectDirectory makes a directory in a project.
func (s *Server) MakeProjectDirectory(ctx context.Context, in wire.MakeProjectDirectoryRequestObject) (
	wire.MakeProjectDirectoryResponseObject, error,
) {
	p, err := s.projectPlace(ctx, in.ProjectID, true)
	if err != nil {
		return nil, err
	}
	execID, err := s.makeDirectory(ctx, p, "makeProjectDirectory", in.Params.Path)
	return wire.MakeProjectDirectory204Response(done(execID)), err
}

// MoveProjectFile moves a file of a project.
func (s *Server) MoveProjectFile(ctx context.Context, in wire.MoveProjectFileRequestObject) (wire.MoveProjectFileResponseObject, error) {
	p, err := s.projectPlace(ctx, in.ProjectID, false)
	if err != nil {
		return nil, err
	}
	execID, err := s.moveFile(ctx, p, "moveProjectFile", *in.Body)
	return wire.MoveProjectFile204Response(done(execID)), err
}

// RemoveProjectFile removes a file of a project.
func (s *Server) RemoveProjectFile(ctx context.Context, in wire.RemoveProjectFileRequestObject) (
	wire.RemoveProjectFileResponseObject, error,
) {
	p, err := s.projectPlace(ctx, in.ProjectID, false)
	if err != nil {
		return nil, err
	}
	execID, err := s.removeFile(ctx, p, "removeProjectFile", in.Params.Path, in.Params.Recursive)
	return wire.RemoveProjectFile204Response(done(execID)), err
}

func done(execID string) wire.FileChangedResponse {
	return wire.FileChangedResponse{Headers: wire.FileChangedResponseHeaders{XExecID: &execID}}
}
