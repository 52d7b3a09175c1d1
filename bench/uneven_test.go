package bench

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestScheduleIsDrawnFromItsSeed(t *testing.T) {
	t.Parallel()
	const n, mean = 3000, 500 * time.Millisecond
	draw := func(seed uint64) []arrival { return schedule(rand.New(rand.NewPCG(seed, 0)), n, mean) }
	list := draw(1)
	if !slices.Equal(list, draw(1)) {
		t.Error("the same seed gave other arrivals")
	}
	if slices.Equal(list, draw(2)) {
		t.Error("another seed gave the same arrivals")
	}
	var sum time.Duration
	short := 0 // of exponential gaps, 1-1/e = 63 % are shorter than their mean; of even ones none
	of := map[int]int{}
	for _, a := range list {
		sum += a.gap
		of[a.project]++
		if a.gap < mean {
			short++
		}
	}
	if got := sum / n; got < 470*time.Millisecond || got > 530*time.Millisecond {
		t.Errorf("%v apart on average", got)
	}
	if short < n*60/100 || short > n*66/100 {
		t.Errorf("%d of %d gaps are shorter than their mean", short, n)
	}
	if len(of) != unevenProjects || of[0] < n/4 || of[1] < n/4 || of[2] < n/4 {
		t.Errorf("arrivals by project: %v", of)
	}
}

// answers stands for a core-api.
type answers func(*http.Request) (string, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := a(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func TestArrivalsDoNotWaitForAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		x := &execs{server: &server{client: &http.Client{Transport: answers(func(*http.Request) (string, error) {
			time.Sleep(10 * time.Second)
			return `{"status": "succeeded"}`, nil
		})}}}
		list := []arrival{{gap: time.Second}, {gap: 2 * time.Second, project: 1}, {gap: 0, project: 2}}
		results, err := x.arrive(t.Context(), list, "p", nothing)
		if err != nil || len(results) != 3 {
			t.Fatalf("%v %v", results, err)
		}
		for i, want := range []time.Duration{time.Second, 3 * time.Second, 3 * time.Second} {
			if r := results[i]; r.sent.Sub(begun) != want || r.took() != 10*time.Second {
				t.Errorf("arrival %d: after %v, took %v", i, r.sent.Sub(begun), r.took())
			}
		}
	})
}

func TestArrivalsEndWithTheFirstError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var calls atomic.Int64
		x := &execs{server: &server{client: &http.Client{Transport: answers(func(*http.Request) (string, error) {
			calls.Add(1)
			return "", broken
		})}}}
		list := slices.Repeat([]arrival{{gap: time.Second}}, 100)
		if _, err := x.arrive(t.Context(), list, "p", nothing); !errors.Is(err, broken) || calls.Load() != 1 {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
	})
}
