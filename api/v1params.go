package api

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"secbox/api/decode"
	"secbox/api/gate"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/packages/library"
)

// owner returns the workspace that a path below /v1/ names, if the caller may use it.
func owner(ctx context.Context, userID, agentID string) (library.Owner, error) {
	return gate.Owner(callFrom(ctx).caller, "userId", userID, "agentId", agentID)
}

// ownerAndScope also parses the parameter scope.
func ownerAndScope(ctx context.Context, userID, agentID string, param *string) (library.Owner, library.Scope, error) {
	o, err := owner(ctx, userID, agentID)
	if err != nil {
		return library.Owner{}, "", err
	}
	scope, err := gate.SkillScope(callFrom(ctx).caller, param)
	return o, scope, err
}

// scopePath is the path of a skill as clients below /v1/ see it. It does not reveal a directory of
// this machine.
func scopePath(scope library.Scope, o library.Owner, skillID string) string {
	if scope == library.Baseline {
		return string(scope) + "/" + o.AgentID + "/" + skillID
	}
	return string(scope) + "/" + o.UserID + "/" + o.AgentID + "/" + skillID
}

// boolean parses an optional parameter that is true or false.
func boolean(name string, param *string) (bool, error) {
	switch value(param) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, fault.BadField(name, "must be true or false")
}

// lineRange parses start and end. A missing one is 0.
func lineRange(start, end *string) (library.LineRange, error) {
	var bad fault.Fields
	number := func(field string, param *string) int {
		if param == nil {
			return 0
		}
		n, err := strconv.ParseUint(*param, 10, 31)
		if err != nil || n == 0 {
			bad.Add(field, "must be a whole number from 1 to %d", math.MaxInt32)
		}
		return int(n)
	}
	r := library.LineRange{Start: number("start", start), End: number("end", end)}
	err := bad.Err()
	if err == nil && r.End != 0 && r.Start > r.End {
		err = fault.BadField("start", "must not be greater than end")
	}
	return r, err
}

// edit reads an edit: its lines, nil for the whole file, and the new text.
func (s *Server) edit(ctx context.Context, start, end *string) (lines *library.LineRange, text []byte, err error) {
	r, err := lineRange(start, end)
	if err != nil {
		return nil, nil, err
	}
	if r != (library.LineRange{}) {
		if r.Start == 0 || r.End == 0 {
			missing := "start"
			if r.Start != 0 {
				missing = "end"
			}
			return nil, nil, fault.BadField(missing, "is missing; an edit of lines needs both start and end")
		}
		lines = &r
	}
	text, err = decode.Text(callFrom(ctx).request, s.cfg.MaxBodyBytes)
	return lines, text, err
}

// contentAnswer reads a whole file or, if r is not zero, the lines of r that the file has.
func (c *call) contentAnswer(r library.LineRange, whole func() ([]byte, error),
	lines func(library.LineRange) ([]string, error),
) (wire.V1ContentAnswer, error) {
	answer := wire.V1ContentAnswer{Status: envelopeSuccess}
	if r != (library.LineRange{}) {
		list, err := lines(library.LineRange{Start: cmp.Or(r.Start, 1), End: cmp.Or(r.End, math.MaxInt32)})
		size := 0
		for _, line := range list {
			size += len(line) + 1
		}
		answer.Data.Content = list
		return answer, errors.Join(err, c.reserveContent(size))
	}
	content, err := whole()
	if err == nil {
		err = c.reserveContent(len(content))
	}
	if err != nil {
		return answer, err
	}
	if !utf8.Valid(content) {
		return answer, fault.BadField("path", "the file is not UTF-8 text, so it cannot be shown; download it, or read it with a command")
	}
	answer.Data.Content = string(content)
	return answer, nil
}
