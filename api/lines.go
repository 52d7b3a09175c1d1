package api

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"secbox/fault"
	"secbox/skills/library"
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
func (c *call) shown(r library.LineRange, whole func() ([]byte, error), some func(library.LineRange) ([]string, error)) (V1ContentAnswer, error) {
	answer := V1ContentAnswer{Status: saysSuccess}
	if r != (library.LineRange{}) {
		list, err := some(library.LineRange{Start: cmp.Or(r.Start, 1), End: cmp.Or(r.End, math.MaxInt32)})
		size := 0
		for _, line := range list {
			size += len(line) + 1
		}
		answer.Data.Content = list
		return answer, errors.Join(err, c.shows(size))
	}
	content, err := whole()
	if err == nil {
		err = c.shows(len(content))
	}
	if err != nil {
		return answer, err
	}
	if !utf8.Valid(content) {
		return answer, fault.BadField("path", "the file is no UTF-8 text, so it cannot be shown; download it, or look at it with a command")
	}
	answer.Data.Content = string(content)
	return answer, nil
}
