package api

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"secbox/api/wire"
)

// GetRoot leads browsers to the console, and tells programs what this service is.
func (s *Server) GetRoot(ctx context.Context, _ wire.GetRootRequestObject) (wire.GetRootResponseObject, error) {
	call := callFrom(ctx)
	page, err := jsonPage(wire.ServiceInfo{
		Service: "core-api", About: "Runs commands for AI agents in throw-away containers, and proves afterwards what ran.",
		Console: consolePath, Docs: "/docs", Openapi: "/openapi.json", Health: "/sandbox/health",
	})
	if err != nil {
		return nil, err
	}
	return nil, call.answer(func(w http.ResponseWriter) error {
		w.Header().Add("Vary", "Accept")
		if s.cfg.Console != nil && isBrowser(call.request) {
			http.Redirect(w, call.request, consolePath, http.StatusSeeOther)
			return nil
		}
		return page.Serve(w, call.request)
	})
}

// GetContract sends openapi.yaml without the extensions for the code generator.
func (s *Server) GetContract(ctx context.Context, _ wire.GetContractRequestObject) (wire.GetContractResponseObject, error) {
	p, err := s.docs.YAML()
	return nil, callFrom(ctx).answerPage(p, err)
}

// GetContractJSON sends the same as JSON.
func (s *Server) GetContractJSON(ctx context.Context, _ wire.GetContractJSONRequestObject) (wire.GetContractJSONResponseObject, error) {
	p, err := s.docs.JSON()
	return nil, callFrom(ctx).answerPage(p, err)
}

// GetDocs sends the same as a page to read, with examples that work for this caller.
func (s *Server) GetDocs(ctx context.Context, _ wire.GetDocsRequestObject) (wire.GetDocsResponseObject, error) {
	docs := s.docs.Token
	if _, err := s.gate.WithoutToken(callFrom(ctx).request); err == nil {
		docs = s.docs.Tokenless
	}
	p, err := docs()
	return nil, callFrom(ctx).answerPage(p, err)
}

// GetDocsScript sends the script of the page.
func (s *Server) GetDocsScript(ctx context.Context, _ wire.GetDocsScriptRequestObject) (wire.GetDocsScriptResponseObject, error) {
	return nil, callFrom(ctx).answerPage(s.docs.Script, nil)
}

// GetDocsIcon sends the icon of the page.
func (s *Server) GetDocsIcon(ctx context.Context, _ wire.GetDocsIconRequestObject) (wire.GetDocsIconResponseObject, error) {
	return nil, callFrom(ctx).answerPage(s.docs.Icon, nil)
}

// GetLiveness reports that the process answers.
func (s *Server) GetLiveness(context.Context, wire.GetLivenessRequestObject) (wire.GetLivenessResponseObject, error) {
	return wire.GetLiveness200JSONResponse{Status: "ok"}, nil
}

// GetReadiness reports whether load balancers should send requests here.
func (s *Server) GetReadiness(ctx context.Context, _ wire.GetReadinessRequestObject) (wire.GetReadinessResponseObject, error) {
	if err := s.cfg.Health.Ready(ctx); err != nil {
		return nil, notReady{err}
	}
	return wire.GetReadiness200JSONResponse{Status: "ok"}, nil
}

// GetHealth reports the health of the server, with status 503 if an exec could not run.
func (s *Server) GetHealth(ctx context.Context, _ wire.GetHealthRequestObject) (wire.GetHealthResponseObject, error) {
	report := s.cfg.Health.Report(ctx)
	if report.Problems == nil {
		report.Problems = []wire.HealthProblem{}
	}
	if report.Status == wire.Unavailable {
		return wire.GetHealth503JSONResponse(report), nil
	}
	return wire.GetHealth200JSONResponse(report), nil
}

// GetPool reports the containers that wait for a job.
func (s *Server) GetPool(context.Context, wire.GetPoolRequestObject) (wire.GetPoolResponseObject, error) {
	return wire.GetPool200JSONResponse(s.cfg.Pool.Report()), nil
}

// GetMetrics sends the metrics of the registry.
func (s *Server) GetMetrics(ctx context.Context, _ wire.GetMetricsRequestObject) (wire.GetMetricsResponseObject, error) {
	metrics := promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{DisableCompression: true})
	call := callFrom(ctx)
	return nil, call.answer(func(w http.ResponseWriter) error {
		metrics.ServeHTTP(w, call.request)
		return nil
	})
}
