package api

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// GetRoot leads browsers to the console, and tells programs what this service is.
func (s *Server) GetRoot(ctx context.Context, _ GetRootRequestObject) (GetRootResponseObject, error) {
	r := callFrom(ctx).request
	page, err := jsonPage(ServiceInfo{
		Service: "core-api", About: "Runs commands for AI agents in throw-away containers, and proves afterwards what ran.",
		Console: consolePath, Docs: "/docs", Openapi: "/openapi.json", Health: "/sandbox/health",
	})
	return raw(func(w http.ResponseWriter) error {
		w.Header().Add("Vary", "Accept")
		if s.cfg.Console != nil && isBrowser(r) {
			http.Redirect(w, r, consolePath, http.StatusSeeOther)
			return nil
		}
		return page.Serve(w, r)
	}), err
}

// GetContract sends openapi.yaml without the extensions for the code generator.
func (s *Server) GetContract(ctx context.Context, _ GetContractRequestObject) (GetContractResponseObject, error) {
	p, err := s.docs.YAML()
	return pageAnswer(callFrom(ctx).request, p, err)
}

// GetContractJSON sends the same as JSON.
func (s *Server) GetContractJSON(ctx context.Context, _ GetContractJSONRequestObject) (GetContractJSONResponseObject, error) {
	p, err := s.docs.JSON()
	return pageAnswer(callFrom(ctx).request, p, err)
}

// GetDocs sends the same as a page to read, with examples that work for this caller.
func (s *Server) GetDocs(ctx context.Context, _ GetDocsRequestObject) (GetDocsResponseObject, error) {
	r, docs := callFrom(ctx).request, s.docs.Token
	if _, err := s.gate.WithoutToken(r); err == nil {
		docs = s.docs.Tokenless
	}
	p, err := docs()
	return pageAnswer(r, p, err)
}

// GetDocsScript sends the script of the page.
func (s *Server) GetDocsScript(ctx context.Context, _ GetDocsScriptRequestObject) (GetDocsScriptResponseObject, error) {
	return pageAnswer(callFrom(ctx).request, s.docs.Script, nil)
}

// GetLiveness reports that the process answers.
func (s *Server) GetLiveness(context.Context, GetLivenessRequestObject) (GetLivenessResponseObject, error) {
	return GetLiveness200JSONResponse{Status: "ok"}, nil
}

// GetReadiness reports whether load balancers should send requests here.
func (s *Server) GetReadiness(ctx context.Context, _ GetReadinessRequestObject) (GetReadinessResponseObject, error) {
	if err := s.cfg.Health.Ready(ctx); err != nil {
		return nil, notReady{err}
	}
	return GetReadiness200JSONResponse{Status: "ok"}, nil
}

// GetHealth reports the health of the server, with status 503 if an exec could not run.
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

// GetPool reports the containers that wait for a job.
func (s *Server) GetPool(context.Context, GetPoolRequestObject) (GetPoolResponseObject, error) {
	return GetPool200JSONResponse(s.cfg.Pool.Report()), nil
}

// GetMetrics sends the metrics of the registry.
func (s *Server) GetMetrics(ctx context.Context, _ GetMetricsRequestObject) (GetMetricsResponseObject, error) {
	metrics := promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{DisableCompression: true})
	return raw(func(w http.ResponseWriter) error {
		metrics.ServeHTTP(w, callFrom(ctx).request)
		return nil
	}), nil
}
