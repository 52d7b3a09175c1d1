package traces

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"secbox/fault"
)

// Tracer begins spans. A nil Tracer begins none, and costs nothing. It is safe for concurrent use.
type Tracer struct{ of trace.Tracer }

// New returns a Tracer whose spans go to a provider of OpenTelemetry.
func New(provider trace.TracerProvider) *Tracer { return &Tracer{provider.Tracer("secbox")} }

// Start begins the span of a stage, below the span of ctx. The returned context carries the new
// span. The caller must call End.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, name)
}

// StartAt is Start at an earlier time.
func (t *Tracer) StartAt(ctx context.Context, name string, at time.Time) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, name, trace.WithTimestamp(at))
}

// Serve is Start for a request of a client.
func (t *Tracer) Serve(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
}

func (t *Tracer) start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, Span) {
	ctx, span := t.of.Start(ctx, bounded(name), options...)
	return ctx, Span{span}
}

// Span is one timed stage. The zero value does nothing. Its methods must not be called after End.
type Span struct{ of trace.Span }

// Recording reports whether the span is exported: attributes of others need not be computed.
func (s Span) Recording() bool { return s.of != nil && s.of.IsRecording() }

// Set adds attributes.
func (s Span) Set(attributes ...Attribute) {
	if s.Recording() {
		s.of.SetAttributes(attributes...)
	}
}

// Rename changes the name.
func (s Span) Rename(name string) {
	if s.Recording() {
		s.of.SetName(bounded(name))
	}
}

// End ends the span. errorType is a code of few different values; empty: all went well. A message
// would tell what a client has sent.
func (s Span) End(errorType string) { s.EndAt(time.Time{}, errorType) }

// Done is End with the code of *err, for defer.
func (s Span) Done(err *error) {
	if s.of != nil {
		s.End(string(fault.CodeOf(*err)))
	}
}

// EndAt is End at another time than now.
func (s Span) EndAt(at time.Time, errorType string) {
	if s.of == nil {
		return
	}
	if errorType != "" {
		s.of.SetStatus(codes.Error, bounded(errorType))
		s.of.SetAttributes(Text(ErrorType, errorType))
	}
	if at.IsZero() {
		s.of.End()
	} else {
		s.of.End(trace.WithTimestamp(at))
	}
}

// Attribute is a named value of a span.
type Attribute = attribute.KeyValue

// ErrorType is the name of the attribute that End sets.
const ErrorType = "error.type"

// Text is an attribute with a text. It keeps at most 255 bytes.
func Text(name, value string) Attribute { return attribute.String(name, bounded(value)) }

// Int is an attribute with a number.
func Int(name string, value int64) Attribute { return attribute.Int64(name, value) }

// Bool is an attribute that is true or false.
func Bool(name string, value bool) Attribute { return attribute.Bool(name, value) }

// maxText is the longest text in a span, in bytes. Ids that clients choose are as long.
const maxText = 255

// bounded returns the beginning of a text, as valid UTF-8: a collector would refuse all spans of a
// message with invalid text.
func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.ToValidUTF8(text, "")
}
