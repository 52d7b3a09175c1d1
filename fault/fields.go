package fault

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the fields of an error, and of the bytes of each name and reason.
const (
	mostFields = 100
	mostText   = 600
)

// Fields collects the wrong fields of a request, and counts those beyond the first 100. Its zero
// value is empty.
type Fields struct {
	kept []Field
	more int
}

// Add adds a wrong field, or only counts it beyond the bound.
func (f *Fields) Add(field, format string, args ...any) {
	if len(f.kept) == mostFields {
		f.more++
		return
	}
	f.kept = append(f.kept, Field{Field: shortened(field), Reason: shortened(fmt.Sprintf(format, args...))})
}

// Merge adds the fields of an error, which may be nil.
func (f *Fields) Merge(err error) {
	if err == nil {
		return
	}
	e := From(err)
	for _, one := range e.Fields {
		f.Add(one.Field, "%s", one.Reason)
	}
	f.more += e.MoreFields
}

// Err is InvalidRequest with the fields in the order of their names, or nil when there is none.
func (f *Fields) Err() error {
	if len(f.kept) == 0 {
		return nil
	}
	slices.SortStableFunc(f.kept, func(a, b Field) int { return strings.Compare(a.Field, b.Field) })
	message := f.kept[0].Field + ": " + f.kept[0].Reason
	if more := len(f.kept) - 1 + f.more; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &Error{Code: InvalidRequest, Message: message, Fields: f.kept, MoreFields: f.more}
}

func shortened(s string) string {
	if len(s) <= mostText {
		return s
	}
	cut := mostText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
