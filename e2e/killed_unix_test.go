//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/store/storetest/pgtest"
)

// TestNodeKilledAtAnyMoment kills core-api again and again while clients use it in all ways that
// leave records, and holds every answer against the rows that are found afterwards. Neither
// verification of the evidence nor the witness may find a difference.
func TestNodeKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { killedAtAnyMoment(t, "") })
	if scaled(0, 1) == 1 {
		t.Run("postgres", func(t *testing.T) { killedAtAnyMoment(t, pgtest.New(t).Database(t)) })
	}
}

func killedAtAnyMoment(t *testing.T, database string) {
	rounds := scaled(4, 50)
	l := newLoad(t, database)
	var left []string // containers and their mounts, of the run before
	for round := range rounds {
		p := l.serve()
		l.check(p)
		p.noneOf(left)
		stop := l.start(p)
		// Sometimes at once, sometimes after some answers, and then at any moment.
		containers, all := l.answers()
		containers, all = containers+rand.IntN(8), all+rand.IntN(scaled(20, 200))
		eventually(t, "enough answers", func() bool {
			c, a := l.answers()
			return c >= containers && a >= all || t.Failed()
		})
		if round%10 == 9 {
			l.verify(p)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(400 * time.Millisecond))))
		p.kill()
		left = p.remains()
		stop()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	p := l.serve()
	lost := l.check(p)
	p.noneOf(left)
	p.noContainers()
	containers, all := l.answers()
	t.Logf("%d requests were answered, %d of them by containers; %d execs were lost", all, containers, lost)
	if containers == 0 || lost == 0 {
		t.Error("the kills hit nothing")
	}
	if captures, err := os.ReadDir(filepath.Join(l.dir, "state/captures")); err != nil || len(captures) > 0 {
		t.Errorf("captures stay: %v %v", captures, err)
	}
	p.logged()
	l.verify(p)
	l.endWitness()
	p.terminate()
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := append(p.containers(), mountsOf(p.node())...); len(left) > 0 {
		t.Errorf("after the end: %q", left)
	}
}

// remains are the ids of the containers of a killed core-api, also of those that docker is still to
// make, and of those with mounts.
func (p *process) remains() (ids []string) {
	p.t.Helper()
	text := strings.Join(append(p.containers(), mountsOf(p.node())...), "\n")
	for _, pid := range processesWith("secbox.node=" + p.node()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		text += "\n" + string(line)
	}
	for _, id := range containerID.FindAllStringSubmatch(text, -1) {
		if id[1] != p.node() {
			ids = append(ids, id[1])
		}
	}
	return ids
}

var containerID = regexp.MustCompile(`(?:secbox-|/)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`) // of names and paths

// noneOf waits until nothing of the run before is left.
func (p *process) noneOf(ids []string) {
	p.t.Helper()
	var left []string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("left of the run before: %q", left)
		}
	}()
	eventually(p.t, "nothing of the run before is left", func() bool {
		left = slices.DeleteFunc(p.remains(), func(id string) bool { return !slices.Contains(ids, id) })
		return len(left) == 0
	})
}
