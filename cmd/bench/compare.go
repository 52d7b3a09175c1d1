//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A side is one of the alternatives that a comparison measures.
type side struct {
	name string
	unit unit
	turn turn
	own  bool // it measures the subject, which --against has two of
}

// A turn returns the values that it measured, in its side's unit; most return one. The subject is
// nil in comparisons without one.
type turn func(context.Context, *subject) ([]float64, error)

// A row is a line of the report's table of targets: a number of one side, compared with another
// side's unless other equals ours.
type row struct {
	what        string
	ours, other int // indexes of sides
	stat        stat
	form        form
	bound       float64 // 0: the row has no target
	least       bool    // bound is a minimum
}

// stat is the number of a side that a row is about.
type stat int

const (
	p50    stat = iota
	p95         // a ratio in this form divides one side's p95 by the other's
	paired      // the median of the rounds' ratios: steadier than the ratio of medians when the machine's load changes
)

// form is how a row compares and prints.
type form int

const (
	plain form = iota // the number itself
	times             // ours as a multiple of the other's
	part              // the same as a fraction, 1/20
	adds              // ours minus the other's
)

// A comparison measures its sides in turn, so that all of them see the same machine.
type comparison struct {
	section, title string
	subjects       []*subject // the core-api under test, and with --against the other one too
	sides          []side
	rounds, least  int           // the section's time limit may end it after the least
	pace           time.Duration // from the start of a turn to the start of the next one; 0: at once
	rows           []row
	note           func(*Comparison) // adds other measurements; may be nil
}

var errTimeLimit = errors.New("the time limit of the section is over (--time-limit)")

// compare measures, and appends to the report. Against another core-api it compares each side of
// ours with the other one's, and nothing else.
func (b *bench) compare(ctx context.Context, c comparison) error {
	var lanes []lane
	rows := c.rows
	if b.against == "" {
		var x *subject
		if len(c.subjects) > 0 {
			x = c.subjects[0]
		}
		for _, s := range c.sides {
			lanes = append(lanes, lane{s, x})
		}
	} else {
		rows = nil
		for _, s := range c.sides {
			if !s.own {
				continue
			}
			at := len(lanes)
			r := row{what: c.title + ": " + s.name, ours: at, other: at + 1, stat: paired, form: times, bound: 1.03}
			if r.least = s.unit == perSecond || s.unit == bytesPerSecond; r.least {
				r.bound = 0.97
			}
			rows = append(rows, r)
			for _, x := range c.subjects {
				other := s
				other.name += ", " + x.name
				lanes = append(lanes, lane{other, x})
			}
		}
	}
	if len(lanes) == 0 {
		return nil // nothing of core-api's over HTTP
	}
	b.logf("%s: %s, %d rounds", c.section, c.title, c.rounds)
	for _, x := range c.subjects {
		x.begin()
	}
	pace := &pacer{every: c.pace}
	samples, err := alternate(ctx, c.rounds, c.least, pace, lanes)
	if err != nil {
		return err
	}
	out := &Comparison{Section: c.section, Title: c.title}
	if c.pace > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("a turn every %v; %d of %d started late, since the one before took longer", c.pace,
			pace.late, pace.turns))
	}
	for i, l := range lanes {
		out.Sides = append(out.Sides, summarise(l.side, samples[i]))
	}
	for _, x := range c.subjects {
		notes, err := x.notes(context.WithoutCancel(ctx)) // the time limit was for the measuring
		if err != nil {
			return err
		}
		out.Notes = append(out.Notes, notes...)
	}
	for _, r := range rows {
		out.Targets = append(out.Targets, r.measure(out.Sides))
	}
	if c.note != nil && b.against == "" {
		c.note(out)
	}
	b.report.Comparisons = append(b.report.Comparisons, out)
	return nil
}

// lane is a side with the subject of its turns.
type lane struct {
	side
	x *subject
}

// alternate gives each lane a turn per round, in one order and then in the other, and returns the
// values of complete rounds by lane and round. It ends early, without an error, when the section's
// time limit is over and `least` rounds are complete.
func alternate(ctx context.Context, rounds, least int, pace *pacer, lanes []lane) ([][][]float64, error) {
	out := make([][][]float64, len(lanes))
	for round := range rounds {
		order := make([]int, len(lanes))
		for i := range order {
			order[i] = i
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		values := make([][]float64, len(lanes))
		for _, i := range order {
			err := pace.wait(ctx)
			if err == nil {
				values[i], err = lanes[i].turn(ctx, lanes[i].x)
			}
			switch err = because(ctx, err); {
			case err == nil:
			case errors.Is(err, errTimeLimit) && round >= least:
				return out, nil
			default:
				return nil, err
			}
		}
		for i, v := range values {
			out[i] = append(out[i], v)
		}
	}
	return out, nil
}

// because returns what ended ctx, if anything did, and else err: a call that ctx ends may say
// anything.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// pacer starts turns at an even pace. After a turn that takes longer than that, the next one starts
// at once, and the pace goes on from there: two turns without a gap would disturb each other.
type pacer struct {
	every       time.Duration
	next        time.Time
	turns, late int
}

func (p *pacer) wait(ctx context.Context) error {
	start := time.Now()
	p.turns++
	if p.turns > 1 {
		if start.After(p.next) {
			p.late++
		} else {
			start = p.next
			if err := sleepUntil(ctx, start); err != nil {
				return err
			}
		}
	}
	p.next = start.Add(p.every)
	return nil
}

func sleepUntil(ctx context.Context, then time.Time) error {
	timer := time.NewTimer(time.Until(then))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// timed makes a turn of something whose duration is the value.
func timed(do func(context.Context, *subject) error) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		begun := time.Now()
		err := do(ctx, x)
		return since(begun), err
	}
}

// after makes a turn begin with a step that is not measured.
func (t turn) after(prepare func(context.Context, *subject) error) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		if err := prepare(ctx, x); err != nil {
			return nil, err
		}
		return t(ctx, x)
	}
}

// then appends a step to a turn that is not measured.
func (t turn) then(end func(context.Context, *subject) error) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		values, err := t(ctx, x)
		if err == nil {
			err = end(ctx, x)
		}
		return values, err
	}
}

// per turns milliseconds into a rate of n things per second.
func (t turn) per(n int64) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		values, err := t(ctx, x)
		for i := range values {
			values[i] = float64(n) * 1000 / values[i]
		}
		return values, err
	}
}

// since is the time from begun on, as a turn's value in milliseconds.
func since(begun time.Time) []float64 { return []float64{milliseconds(time.Since(begun))} }
