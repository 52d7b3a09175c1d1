package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"secbox/api/sse"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

const (
	changesPause = 50 * time.Millisecond // between events of a busy server
	changesSkip  = 100                   // events of others after which a client gets a newer id without an event
)

// FollowExecs streams the changes of the execs that match a filter.
func (s *Server) FollowExecs(ctx context.Context, in wire.FollowExecsRequestObject) (wire.FollowExecsResponseObject, error) {
	call := callFrom(ctx)
	var bad fault.Fields
	filter := audit.ParseFilter(call.request.URL.Query().Get, s.cfg.Now(), &bad)
	after := int64(-1)
	if id := value(in.Params.LastEventID); id != "" {
		n, err := strconv.ParseUint(id, 10, 63)
		if after = int64(n); err != nil || strconv.FormatUint(n, 10) != id {
			bad.Add("Last-Event-ID", "is not the id of an event of this route, such as 1207; leave the header out to begin now")
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	some := visible.Own(call.caller, &filter)
	return nil, call.answer(s.stream(call, func(ctx context.Context, out *sse.Stream, _ http.ResponseWriter) error {
		changes, err := s.changes.Follow(ctx, after)
		if err != nil {
			return err
		}
		defer changes.Close()
		told := changes.At()
		out.ID(strconv.FormatInt(told, 10))
		for {
			page, more, err := changes.Next(ctx)
			if err != nil && ctx.Err() != nil {
				return nil
			} else if err != nil { // the client comes again with its last id
				return err
			}
			for _, c := range page {
				if !some || !filter.Matches(c.Record) {
					continue
				}
				told = c.Seq
				if err := out.Event("status", strconv.FormatInt(told, 10), c.Text); err != nil {
					return err
				}
			}
			if at := changes.At(); at-told > changesSkip {
				told = at
				out.ID(strconv.FormatInt(told, 10))
			}
			if more {
				if err := out.Flush(); err != nil {
					return err
				}
				select {
				case <-s.closing:
					return nil
				default:
					continue
				}
			}
			if goesOn, err := out.Wait(ctx, changes.Changed(), changesPause); !goesOn {
				return err
			}
		}
	}))
}

// stateText is the data of an event with the state of an exec.
func stateText(rec audit.Record) []byte {
	text, err := json.Marshal(execState(rec))
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return text
}
