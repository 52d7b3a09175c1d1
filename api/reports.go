package api

import (
	"context"
	"net/http"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit/export"
	"secbox/audit/report"
)

// reportRows is how many records the answer of a report counts, reportPrice their memory in bytes.
const (
	reportRows  = 10_000
	reportPrice = 8 << 20
)

// GetAuditReport reports about a span of time.
func (s *Server) GetAuditReport(ctx context.Context, _ wire.GetAuditReportRequestObject) (wire.GetAuditReportResponseObject, error) {
	call := callFrom(ctx)
	span, err := visible.ParseSpan(call.request.URL.Query().Get, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	if err := call.reserve(reportPrice); err != nil {
		return nil, err
	}
	answer, err := s.cfg.Reports.Read(ctx, span, reportRows)
	if err != nil {
		return nil, err
	}
	return wire.GetAuditReport200JSONResponse(answer), nil
}

// ExportAuditReport sends the report of a span of time with its evidence.
func (s *Server) ExportAuditReport(ctx context.Context, _ wire.ExportAuditReportRequestObject) (wire.ExportAuditReportResponseObject,
	error,
) {
	call := callFrom(ctx)
	span, err := visible.ParseSpan(call.request.URL.Query().Get, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	return nil, call.answer(func(w http.ResponseWriter) error { return s.sendReport(w, call.request, call, span) })
}

// sendReport answers a request with the bundle of a report. A HEAD request gets the header only.
func (s *Server) sendReport(w http.ResponseWriter, r *http.Request, call *call, span report.Span) error {
	return s.sendStream(w, r, call, stream{
		"application/x-ndjson", "audit-report.jsonl", export.ReportMemory,
		func(ctx context.Context) error { return s.cfg.Reports.WriteBundle(ctx, w, span) },
	})
}
