package api

import (
	"context"
	"net/http"
	"time"

	"secbox/api/content"
	"secbox/api/wire"
	"secbox/audit/export"
	"secbox/fault"
)

// Bounds of exports. Each holds a page in memory and, while it reads the next one, a connection to
// the database.
const (
	maxExports         = 8
	maxExportsPerToken = 2

	// maxExportTime is how long an export may take in total, even at a sufficient rate.
	maxExportTime = 6 * time.Hour
)

// ExportAudit sends all records that match a filter.
func (s *Server) ExportAudit(ctx context.Context, _ wire.ExportAuditRequestObject) (wire.ExportAuditResponseObject, error) {
	call := callFrom(ctx)
	var bad fault.Fields
	q := export.ParseQuery(call.request.URL.Query().Get, s.cfg.Now(), &bad)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	return nil, call.answer(func(w http.ResponseWriter) error { return s.sendExport(w, call.request, call, q) })
}

// sendExport answers a request with an export. A HEAD request gets the header only.
func (s *Server) sendExport(w http.ResponseWriter, r *http.Request, call *call, q export.Query) error {
	return s.sendStream(w, r, call, stream{
		q.Format.ContentType(), q.Format.FileName(), export.MaxMemory,
		func(ctx context.Context) error { _, err := s.cfg.Exports.Write(ctx, w, q); return err },
	})
}

// stream is an answer within the bounds of exports.
type stream struct {
	contentType, fileName string
	memory                int64 // bytes that write takes
	write                 func(context.Context) error
}

func (s *Server) sendStream(w http.ResponseWriter, r *http.Request, call *call, answer stream) error {
	share, err := s.exports.Enter(call.caller.ID, 0)
	if err != nil {
		return err
	}
	defer share.Leave()
	if err := call.reserve(answer.memory); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), maxExportTime,
		fault.New(fault.ServerBusy, "the export took longer than %v", maxExportTime))
	defer cancel()
	return content.ServeStream(w, r, answer.contentType, answer.fileName, func() error { return answer.write(ctx) })
}
