// Package traces follows a request through this program and beyond, by W3C Trace Context and
// OpenTelemetry: it reads the trace that a request belongs to, and times the stages of its work as
// spans. Nothing that a client runs, sends or gets is in a span. Other packages mark their stages
// with a Tracer and need not know OpenTelemetry; what exports spans is in traces/otlp.
package traces

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/trace"
)

// Header is the name of the HTTP header, and in lower case of the field of MCP's _meta, that names
// a request's span.
const Header = "Traceparent"

// Variable is the environment variable that names the span of a job to the job.
const Variable = "TRACEPARENT"

// ID names a span of a trace. The zero value names none.
type ID struct {
	Trace   string // 32 hexadecimal digits
	Span    string // 16 hexadecimal digits
	Sampled bool   // the client records the trace
}

// String returns the ID as a traceparent; empty for none.
func (id ID) String() string {
	switch {
	case id.Trace == "":
		return ""
	case id.Sampled:
		return "00-" + id.Trace + "-" + id.Span + "-01"
	}
	return "00-" + id.Trace + "-" + id.Span + "-00"
}

// The parts of a traceparent: version-trace-span-flags.
const (
	afterVersion = 2
	afterTrace   = afterVersion + 1 + 32
	afterSpan    = afterTrace + 1 + 16
	wholeLength  = afterSpan + 1 + 2
	maxLength    = 512 // versions to come may add fields
)

// Parse reads a traceparent. It accepts exactly what W3C Trace Context lets a receiver accept,
// which of versions to come is their beginning.
func Parse(traceparent string) (ID, bool) {
	s := traceparent
	if len(s) < wholeLength || len(s) > maxLength || s[afterVersion] != '-' || s[afterTrace] != '-' || s[afterSpan] != '-' {
		return ID{}, false
	}
	version, versionOK := digits(s[:afterVersion])
	flags, flagsOK := digits(s[afterSpan+1 : wholeLength])
	if !versionOK || !flagsOK || version == 0xff || len(s) > wholeLength && (version == 0 || s[wholeLength] != '-') {
		return ID{}, false
	}
	id := ID{Trace: s[afterVersion+1 : afterTrace], Span: s[afterTrace+1 : afterSpan], Sampled: flags&1 != 0}
	if !id.context().IsValid() {
		return ID{}, false
	}
	return id, true
}

// digits reads two hexadecimal digits in lower case.
func digits(s string) (value byte, ok bool) {
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			value = value<<4 | (c - '0')
		case 'a' <= c && c <= 'f':
			value = value<<4 | (c - 'a' + 10)
		default:
			return 0, false
		}
	}
	return value, true
}

// context returns the ID for OpenTelemetry, marked as another program's. An invalid ID names no
// span.
func (id ID) context() trace.SpanContext {
	traceID, err := trace.TraceIDFromHex(id.Trace) // refuses upper case and zeros
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(id.Span)
	if err != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(0).WithSampled(id.Sampled), Remote: true,
	})
}

// With returns a context whose work belongs to a span of another program, or of this one at another
// time. One that is not valid changes nothing.
func With(ctx context.Context, id ID) context.Context {
	if of := id.context(); of.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, of)
	}
	return ctx
}

// FromHeader is With for the span that a request's header names. A header that is not valid, or
// given twice, names none. Vendors' tracestate is dropped.
func FromHeader(ctx context.Context, h http.Header) context.Context {
	values := h[Header]
	if len(values) != 1 {
		return ctx
	}
	id, ok := Parse(values[0])
	if !ok {
		return ctx
	}
	return With(ctx, id)
}

// FromMessage returns a context whose work belongs to the span that a message in a request names,
// or else to the span of the request's header, or else to none. ctx may belong to an earlier
// request.
func FromMessage(ctx context.Context, traceparent string, h http.Header) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	if id, ok := Parse(traceparent); ok {
		return With(ctx, id)
	}
	return FromHeader(ctx, h)
}

// Of returns the span that the work of a context belongs to.
func Of(ctx context.Context) ID {
	of := trace.SpanContextFromContext(ctx)
	if !of.IsValid() {
		return ID{}
	}
	return ID{Trace: of.TraceID().String(), Span: of.SpanID().String(), Sampled: of.IsSampled()}
}
