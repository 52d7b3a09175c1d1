package api

import (
	"math"
	"strconv"
	"unicode/utf8"

	"secbox/fault"
	"secbox/skills/library"
	"secbox/skills/lines"
)

// lineRange reads start and end. Either may be missing: then it is 0.
func lineRange(start, end *string) (library.LineRange, error) {
	var bad []fault.Field
	number := func(field string, param *string) int {
		if param == nil {
			return 0
		}
		n, err := strconv.ParseUint(*param, 10, 31)
		if err != nil || n == 0 {
			bad = append(bad, fault.Field{Field: field, Reason: "must be a whole number from 1"})
		}
		return int(n)
	}
	r := library.LineRange{Start: number("start", start), End: number("end", end)}
	if len(bad) == 0 && r.End != 0 && r.Start > r.End {
		bad = append(bad, fault.Field{Field: "start", Reason: "must not be greater than end"})
	}
	return r, invalid(bad)
}

// replaced is the range of an edit: both ends, or nil for the whole file.
func replaced(start, end *string) (*library.LineRange, error) {
	r, err := lineRange(start, end)
	switch {
	case err != nil:
		return nil, err
	case r == library.LineRange{}:
		return nil, nil
	case r.Start == 0:
		return nil, fault.BadField("start", "is missing; an edit of lines needs both start and end")
	case r.End == 0:
		return nil, fault.BadField("end", "is missing; an edit of lines needs both start and end")
	}
	return &r, nil
}

// shown is a file's content as the contract has it: the text, or the lines from start to end as far as there are any.
func shown(content []byte, r library.LineRange) (V1ContentAnswer, error) {
	answer := V1ContentAnswer{Status: saysSuccess}
	if !utf8.Valid(content) {
		return answer, fault.BadField("path", "the file is no UTF-8 text, so it cannot be shown; download it, or look at it with a command")
	}
	if r == (library.LineRange{}) {
		answer.Data.Content = string(content)
		return answer, nil
	}
	if r.Start == 0 {
		r.Start = 1
	}
	if r.End == 0 {
		r.End = math.MaxInt32
	}
	some, err := lines.Slice(content, r.Start, r.End)
	answer.Data.Content = some
	return answer, err
}
