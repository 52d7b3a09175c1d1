package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/api/wire"
)

// raw is an answer that is not encoded by generated code: pages, files and archives. Such an operation needs its Visit method here.
type raw func(w http.ResponseWriter) error

func (f raw) VisitCancelExecResponse(w http.ResponseWriter) error          { return f(w) }
func (f raw) VisitDownloadArtifactResponse(w http.ResponseWriter) error    { return f(w) }
func (f raw) VisitDownloadInputResponse(w http.ResponseWriter) error       { return f(w) }
func (f raw) VisitDownloadSkillResponse(w http.ResponseWriter) error       { return f(w) }
func (f raw) VisitExportAuditResponse(w http.ResponseWriter) error         { return f(w) }
func (f raw) VisitFollowExecsResponse(w http.ResponseWriter) error         { return f(w) }
func (f raw) VisitGetAdminEventProofResponse(w http.ResponseWriter) error  { return f(w) }
func (f raw) VisitGetContractJSONResponse(w http.ResponseWriter) error     { return f(w) }
func (f raw) VisitGetContractResponse(w http.ResponseWriter) error         { return f(w) }
func (f raw) VisitGetDocsResponse(w http.ResponseWriter) error             { return f(w) }
func (f raw) VisitGetDocsScriptResponse(w http.ResponseWriter) error       { return f(w) }
func (f raw) VisitGetExecAttestationResponse(w http.ResponseWriter) error  { return f(w) }
func (f raw) VisitGetExecEventsResponse(w http.ResponseWriter) error       { return f(w) }
func (f raw) VisitGetExecProofResponse(w http.ResponseWriter) error        { return f(w) }
func (f raw) VisitGetLogCheckpointResponse(w http.ResponseWriter) error    { return f(w) }
func (f raw) VisitGetLogDocumentsResponse(w http.ResponseWriter) error     { return f(w) }
func (f raw) VisitGetLogTileResponse(w http.ResponseWriter) error          { return f(w) }
func (f raw) VisitGetManifestResponse(w http.ResponseWriter) error         { return f(w) }
func (f raw) VisitGetMetaResponse(w http.ResponseWriter) error             { return f(w) }
func (f raw) VisitGetMetricsResponse(w http.ResponseWriter) error          { return f(w) }
func (f raw) VisitDownloadSandboxFileResponse(w http.ResponseWriter) error { return f(w) }
func (f raw) VisitGetSkillResponse(w http.ResponseWriter) error            { return f(w) }
func (f raw) VisitGetRootResponse(w http.ResponseWriter) error             { return f(w) }
func (f raw) VisitGetStderrResponse(w http.ResponseWriter) error           { return f(w) }
func (f raw) VisitGetStdoutResponse(w http.ResponseWriter) error           { return f(w) }
func (f raw) VisitInvokeSkillResponse(w http.ResponseWriter) error         { return f(w) }
func (f raw) VisitListArtifactsResponse(w http.ResponseWriter) error       { return f(w) }
func (f raw) VisitListSkillsResponse(w http.ResponseWriter) error          { return f(w) }
func (f raw) VisitResolvePolicyResponse(w http.ResponseWriter) error       { return f(w) }
func (f raw) VisitRunExecResponse(w http.ResponseWriter) error             { return f(w) }

// pageAnswer answers r with a page.
func pageAnswer(r *http.Request, p content.Page, err error) (raw, error) {
	return func(w http.ResponseWriter) error { return p.Serve(w, r) }, err
}

// envelopeSuccess is the status of every successful answer below /v1/.
const envelopeSuccess = "success"

// message is a successful answer below /v1/ with a text.
func message(text string) wire.V1Message { return wire.V1Message{Status: envelopeSuccess, Data: text} }

// timestamp returns nil for the zero time.
func timestamp(t time.Time) *visible.Timestamp {
	if t.IsZero() {
		return nil
	}
	return new(visible.Timestamp(t))
}

// jsonPage is a page whose entity tag is a digest of the encoded answer, so that it differs between versions of this server.
func jsonPage(v any) (content.Page, error) {
	body, err := json.Marshal(v)
	return content.NewPage("application/json", append(body, '\n'), problem.CSP), err
}

// notNil makes an empty list encode as [] instead of null.
func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// text returns the valid UTF-8 of bytes that a job wrote.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// value returns an optional parameter, "" if it is absent.
func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
