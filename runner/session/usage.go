package session

import (
	"encoding/json"
	"sync"
	"time"

	"secbox/engine"
)

// Sample is what the container of a session used.
type Sample struct {
	At          time.Time `json:"at"`
	CPUUS       int64     `json:"cpu_us"`       // CPU time since the container's start, microseconds
	MemoryBytes int64     `json:"memory_bytes"` // the most since the sample before
}

// Samples are what the container of a session used, in the order of time.
type Samples struct {
	Samples []Sample `json:"samples"`
}

// JSON is the form of UsageFile.
func (s Samples) JSON() []byte {
	text, _ := json.Marshal(s) // never fails
	return append(text, '\n')
}

// ReadSamples reads what JSON returned.
func ReadSamples(text []byte) (s Samples, err error) {
	err = json.Unmarshal(text, &s)
	return s, err
}

// Bounds of the samples of a session. When there are too many, two become one, and the pause
// between later ones doubles, so that they are even over the session's life.
const (
	mostSamples = 240
	samplePause = 2 * time.Second
)

// usage collects samples.
type usage struct {
	mu    sync.Mutex
	all   []Sample
	next  Sample
	pause time.Duration
}

func (u *usage) add(now engine.Usage, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next = Sample{At: at, CPUUS: now.CPU.Microseconds(), MemoryBytes: max(u.next.MemoryBytes, now.MemoryBytes)}
	if n := len(u.all); n > 0 && at.Sub(u.all[n-1].At) < u.pause {
		return
	}
	u.all = append(u.all, u.next)
	u.next = Sample{}
	if len(u.all) < mostSamples {
		return
	}
	for i := range mostSamples / 2 {
		first, second := u.all[2*i], u.all[2*i+1]
		second.MemoryBytes = max(first.MemoryBytes, second.MemoryBytes)
		u.all[i] = second
	}
	u.all = u.all[:mostSamples/2]
	u.pause = max(2*u.pause, 2*samplePause)
}

// samples returns all, the latest report included.
func (u *usage) samples() Samples {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := append([]Sample{}, u.all...)
	if !u.next.At.IsZero() {
		all = append(all, u.next)
	}
	return Samples{all}
}
