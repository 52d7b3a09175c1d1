package session

import (
	"sync"
	"time"
)

// watch has a session watched while it is in use, and for a moment after that: the next exec may
// come at once.
type watch struct {
	mu   sync.Mutex
	uses int
	end  func() // nil: it is not watched
}

const lingerTime = time.Second

// use begins a use, with begin if the session is not watched.
func (w *watch) use(begin func() (end func())) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uses++
	if w.end == nil {
		w.end = begin()
	}
}

// leave ends a use.
func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uses--; w.uses == 0 {
		time.AfterFunc(lingerTime, w.stop)
	}
}

// stop ends the watching, unless a use has begun.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uses == 0 && w.end != nil {
		w.end()
		w.end = nil
	}
}
