package server

import (
	"time"

	"secbox/api"
	"secbox/engine"
)

// poolReports gives the API the pool's state in the contract's words.
type poolReports struct{ pool *engine.Pool }

func (p poolReports) Report() api.PoolReport {
	s := p.pool.Stats()
	out := api.PoolReport{
		Enabled: s.Max > 0, Max: s.Max, MaxPerKey: s.MaxPerKey, MaxMemoryMB: s.MaxMemoryMB, IdleSeconds: int64(s.Idle / time.Second),
		SlotMemoryMB: engine.SlotMemoryMB, Idle: s.Waiting, Starting: s.Starting, MemoryMB: int64(s.Waiting+s.Starting) * engine.SlotMemoryMB,
		ShortOfMemory: s.Pressed, Hits: s.Hits, Misses: s.Misses, Refills: s.Refills, RefillFailures: s.Failures,
		AgeMS: spread(s.Age), RefillMS: spread(s.Refill), Keys: []api.PoolKey{},
	}
	d := s.Dropped
	out.Dropped.Lru, out.Dropped.Idle, out.Dropped.Stale = d.LRU, d.Idle, d.Stale
	out.Dropped.Dead, out.Dropped.Pressed, out.Dropped.Drained = d.Dead, d.Pressed, d.Drained
	for _, k := range s.Keys {
		out.Keys = append(out.Keys, api.PoolKey{
			ProjectID: k.ProjectID, Image: k.ImageRef, ImageID: k.ImageID, Runtime: k.Runtime, Access: k.Access,
			MemoryMB: k.Limits.MemoryMB, CPUCores: k.Limits.CPUCores, Pids: k.Limits.PIDs, TmpMB: k.Limits.TmpMB,
			Idle: k.Waiting, Starting: k.Starting, Wanted: k.Wanted, LastUsedAt: k.LastUse.UTC(), OldestMS: k.Oldest.Milliseconds(),
		})
	}
	return out
}

func spread(s engine.Spread) api.PoolSpread {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return api.PoolSpread{N: s.N, P50: ms(s.P50), P95: ms(s.P95), Max: ms(s.Max)}
}
