package places

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox/inside"
)

// Process describes a process of a session. It is what a program in the container says, and a
// process of the session's user may have forged it.
type Process struct {
	PID, Parent int
	Command     string        // its arguments, with a space between them; UTF-8
	State       string        // a letter, see proc(5); empty: not known
	CPU         time.Duration // that it has used
	MemoryBytes int64         // resident
	StartedAt   time.Time
}

// MaxProcesses is the most that Processes returns.
const MaxProcesses = 500

// Processes returns the processes of a session, in the order of their ids, and whether there are
// more.
func (s Session) Processes(ctx context.Context) (all []Process, more bool, err error) {
	answer, err := s.run(ctx, inside.Request{Op: inside.Processes, Limit: MaxProcesses}, nil, quickTime, 0, nil)
	if err != nil {
		return nil, false, err
	}
	if len(answer.Processes) > MaxProcesses {
		return nil, false, fault.New(fault.OutcomeUnknown, "the session lists %d processes, more than it was asked for",
			len(answer.Processes))
	}
	for _, p := range answer.Processes {
		all = append(all, Process{
			PID: max(0, p.PID), Parent: max(0, p.Parent), State: strings.ToValidUTF8(p.State[:min(1, len(p.State))], ""),
			Command:     strings.ToValidUTF8(string(p.Command[:min(len(p.Command), inside.MaxCommand)]), "\uFFFD"),
			MemoryBytes: max(0, p.MemoryBytes), StartedAt: p.StartedAt.UTC(),
			CPU: time.Duration(min(max(0, p.CPUUS), mostCPUUS)) * time.Microsecond,
		})
	}
	slices.SortStableFunc(all, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return all, answer.More, nil
}

const mostCPUUS = 1 << 50 // more than any process has used
