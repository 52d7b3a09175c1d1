package engine

import (
	"math"
	"time"
)

// demand is a decaying count of the uses of a key's containers, and the number of containers that
// was enough for them. The zero value: never, and none.
type demand struct {
	uses float64   // as of last: a use counts as one, and half as much every halfLife
	last time.Time // use
	rank float64   // orders demands by their uses at any common time

	level int       // how many were enough at the busiest time since
	since time.Time // then
}

const (
	// halfLife follows a change of the rate within half a minute, with an error of an eighth at two
	// arrivals per second.
	halfLife = 10 * time.Second
	// lowerAfter is how long the level stays before it falls by one: random arrivals must not start
	// and drop containers in turn.
	lowerAfter = 30 * time.Second
)

// at returns the weighted number of uses at now: a use counts half as much after each halfLife.
func (d *demand) at(now time.Time) float64 {
	return d.uses * math.Exp2(-max(0, now.Sub(d.last)).Seconds()/halfLife.Seconds())
}

// add counts uses, which may be a fraction.
func (d *demand) add(uses float64, now time.Time) {
	d.uses, d.last = d.at(now)+uses, now
	d.rank = math.Log2(d.uses) + float64(now.UnixNano())/float64(halfLife)
}

// raise notes how many containers are enough now.
func (d *demand) raise(enough int, now time.Time) {
	if enough >= d.held(now) {
		d.level, d.since = enough, now
	}
}

// held returns how many containers to keep: the level, less one for each lowerAfter since it was
// set.
func (d *demand) held(now time.Time) int {
	return max(0, d.level-int(max(0, now.Sub(d.since))/lowerAfter))
}

// compare orders demands, the smallest first.
func (d *demand) compare(other *demand) int {
	switch {
	case d.last.IsZero() || other.last.IsZero() || d.rank == other.rank:
		return d.last.Compare(other.last)
	case d.rank < other.rank:
		return -1
	default:
		return 1
	}
}

// perSecond is the rate of random arrivals whose uses count as much.
func perSecond(uses float64) float64 { return max(0, uses) * math.Ln2 / halfLife.Seconds() }

// pace is how fast containers are replaced.
type pace struct {
	start  time.Duration // of one
	atOnce int
}

const (
	firstStart = 300 * time.Millisecond // expected before the first one
	mostStart  = 2 * time.Second        // an engine in trouble needs no more containers that wait
	startShare = 8                      // the mean follows each start by an eighth

	maxMisses = 0.01 // of random arrivals
	// maxBusy bounds the share of time in which containers are started for a key. Above one, no
	// number is enough: arrivals are as slow as the engine, and what waits is used up soon.
	maxBusy = 0.75
)

// note follows the time that a start took.
func (p *pace) note(took time.Duration) {
	p.start += (min(took, mostStart) - p.start) / startShare
}

// enough is how many containers must wait so that fewer than maxMisses of random arrivals find
// none, when there are others per second whose containers the same engine starts.
//
// Containers are started one after the other, or atOnce, so the number that is missing is the
// length of a queue. Its probabilities follow Erlang's formula until all starters are busy. Then
// they fall by the same factor for each further container: by busy if starts take exponential
// times, by busy² if they take constant times. Real starts are between these. An arrival finds none
// when as many are missing as should wait.
func (p pace) enough(rate, others float64) int {
	servers := float64(p.atOnce)
	each := p.start.Seconds() / servers // of all servers
	busy := min(rate*each/(1-min(others*each, maxBusy)), maxBusy)
	missing, sum := 1.0, 1.0 // probabilities, divided by the probability that none is missing
	for n := 1; ; n++ {
		if n <= p.atOnce {
			missing *= busy * servers / float64(n)
		} else {
			missing *= busy * math.Sqrt(busy)
		}
		sum += missing
		if missing < maxMisses*sum {
			return n
		}
	}
}
