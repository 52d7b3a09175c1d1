package api

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"
)

// page is a document that does not change while the server runs.
type page struct {
	contentType string
	body        []byte
	etag        string
	csp         string
}

func newPage(contentType string, body []byte, csp string) page {
	return page{contentType: contentType, body: body, etag: `"` + hash(body)[:32] + `"`, csp: csp}
}

// pageAnswer is a page on its way to one caller.
type pageAnswer struct {
	page
	request *http.Request
}

// VisitGetContractResponse writes the answer.
func (a pageAnswer) VisitGetContractResponse(w http.ResponseWriter) error { return a.serve(w) }

// VisitGetContractJSONResponse writes the answer.
func (a pageAnswer) VisitGetContractJSONResponse(w http.ResponseWriter) error { return a.serve(w) }

// VisitGetDocsScriptResponse writes the answer.
func (a pageAnswer) VisitGetDocsScriptResponse(w http.ResponseWriter) error { return a.serve(w) }

// VisitGetDocsResponse writes the answer.
func (a pageAnswer) VisitGetDocsResponse(w http.ResponseWriter) error { return a.serve(w) }

func (a pageAnswer) serve(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Security-Policy", a.csp)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	r := a.request.Clone(a.request.Context())
	r.Header.Del("Range") // small documents are sent whole
	r.Header.Del("If-Match")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
	return nil
}

// GetContract sends the published contract.
func (s *Server) GetContract(ctx context.Context, _ GetContractRequestObject) (GetContractResponseObject, error) {
	p, err := specYAML()
	return pageAnswer{p, callFrom(ctx).request}, err
}

// GetContractJSON sends it as JSON.
func (s *Server) GetContractJSON(ctx context.Context, _ GetContractJSONRequestObject) (GetContractJSONResponseObject, error) {
	p, err := specJSON()
	return pageAnswer{p, callFrom(ctx).request}, err
}

// The published contract, made when it is first asked for.
var (
	specYAML = sync.OnceValues(func() (page, error) {
		c, err := ownContract()
		if err != nil {
			return page{}, err
		}
		text, err := c.published().yaml()
		return newPage("application/yaml; charset=utf-8", text, basicCSP), err
	})
	specJSON = sync.OnceValues(func() (page, error) {
		c, err := ownContract()
		if err != nil {
			return page{}, err
		}
		return newPage("application/json", []byte(c.published().json()+"\n"), basicCSP), nil
	})
)

// GetDocs sends the contract as a page to read, with examples that work for this caller.
func (s *Server) GetDocs(ctx context.Context, _ GetDocsRequestObject) (GetDocsResponseObject, error) {
	r := callFrom(ctx).request
	_, err := s.withoutToken(r)
	p, err := s.docs[err == nil]()
	return pageAnswer{p, r}, err
}

// GetDocsScript sends the page's script.
func (s *Server) GetDocsScript(ctx context.Context, _ GetDocsScriptRequestObject) (GetDocsScriptResponseObject, error) {
	return pageAnswer{s.script, callFrom(ctx).request}, nil
}

// writeNotFound tells a person that no route has the path.
func (s *Server) writeNotFound(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", s.notFound.contentType)
	h.Set("Content-Security-Policy", s.notFound.csp)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotFound)
	if r.Method != http.MethodHead {
		_, _ = w.Write(s.notFound.body) // a client that has gone is no news
	}
}

// GetLiveness says that the process serves.
func (s *Server) GetLiveness(context.Context, GetLivenessRequestObject) (GetLivenessResponseObject, error) {
	return GetLiveness200JSONResponse{Status: "ok"}, nil
}

// GetReadiness says whether requests should be sent here.
func (s *Server) GetReadiness(ctx context.Context, _ GetReadinessRequestObject) (GetReadinessResponseObject, error) {
	if err := s.cfg.Health.Ready(ctx); err != nil {
		return nil, notReady{err}
	}
	return GetReadiness200JSONResponse{Status: "ok"}, nil
}

// GetHealth reports how the server is; the same report with 503 when an exec could not run.
func (s *Server) GetHealth(ctx context.Context, _ GetHealthRequestObject) (GetHealthResponseObject, error) {
	report := s.cfg.Health.Report(ctx)
	if report.Problems == nil {
		report.Problems = []HealthProblem{}
	}
	if report.Status == HealthReportStatusUnavailable {
		return GetHealth503JSONResponse(report), nil
	}
	return GetHealth200JSONResponse(report), nil
}

// GetPool tells which containers wait for a job.
func (s *Server) GetPool(context.Context, GetPoolRequestObject) (GetPoolResponseObject, error) {
	return GetPool200JSONResponse(s.cfg.Pool.Report()), nil
}
