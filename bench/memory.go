package bench

import (
	"context"
	"fmt"
	"strings"

	"secbox/engine"
)

// Held is the memory, in bytes, that processes hold.
type Held struct {
	PSS int64 `json:"pss_bytes"` // pages that several processes share count in parts: what the processes cost together
	RSS int64 `json:"rss_bytes"`
}

func (h *Held) add(other Held) { h.PSS, h.RSS = h.PSS+other.PSS, h.RSS+other.RSS }

func (h Held) by(n int) Held { return Held{h.PSS / int64(n), h.RSS / int64(n)} }

// Idling is what slots cost while they wait.
type Idling struct {
	Slots       int   `json:"slots"`
	Slot        Held  `json:"slot"` // one, on average: its part of all below but core-api itself
	CLI         Held  `json:"docker_cli"`
	Shim        Held  `json:"shim"`
	Init        Held  `json:"sandbox_init"`
	Others      Held  `json:"other_children"` // a slot's part of core-api's other children, such as a CLI that follows the engine's events
	CoreAPI     Held  `json:"core_api"`
	CoreAPIPeak int64 `json:"core_api_peak_rss_bytes"`
}

// memory fills the pool with slots, one for each of many projects, and weighs their processes.
func (x *execs) memory(ctx context.Context) (*Idling, error) {
	x.say("memory: %d idle slots", x.Slots)
	if err := canWeigh(); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if _, err := x.alone(ctx); err != nil {
			return nil, err
		}
		p, err := x.server.pool(ctx)
		if err != nil {
			return nil, because(ctx, err)
		}
		if p.Idle >= x.Slots {
			break
		}
		if try == fillTries {
			return nil, fmt.Errorf("the pool keeps %d idle slots instead of %d, with %d projects used %d times", p.Idle, x.Slots, x.Slots, fillTries)
		}
		for i := range x.Slots {
			if _, err := x.server.exec(ctx, fmt.Sprintf("memory-%d", i), nothing); err != nil {
				return nil, because(ctx, err)
			}
		}
	}
	ids, err := x.Docker.Output(ctx, "ps", "--no-trunc", "--filter", "label="+engine.LabelNode+"="+x.server.node, "--format", "{{.ID}}")
	if err != nil {
		return nil, because(ctx, err)
	}
	return weigh(x.server.pid(), strings.Fields(string(ids)))
}
