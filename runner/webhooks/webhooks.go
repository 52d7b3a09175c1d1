// Package webhooks tells services of clients that execs have ended: a signed POST to the
// callback_url of the request, repeated until the service takes it.
//
// A delivery is stored before the row of its exec. The transaction that ends the row makes it due;
// every node with a free place takes due deliveries by an atomic claim, for the time of a lease.
// The claim of a node that dies during a try ends with the lease, so a delivery is made at least
// once, always with the same id. The package must not know the HTTP API; it only knows records, and
// what a store does.
//
// River does not carry webhooks: SQLite has none, and a second queue beside the row would need its
// own proof that it leaves out no end of an exec.
package webhooks

import (
	"context"
	"time"
)

// State is how far a delivery is.
type State string

// The states of deliveries.
const (
	Open      State = "open"      // the exec has not ended
	Due       State = "due"       // the exec has ended; the next try is at NextAt
	Sending   State = "sending"   // of Delivery.Now only: a try is being made, or its node has died in the middle
	Delivered State = "delivered" // the service answered 2xx
	Failed    State = "failed"    // no further try is made
)

// Delivery is the callback of an exec.
type Delivery struct {
	ExecID      string
	RequestedBy string
	Host        string // of URL, with its port; see Policy.Check
	URL         string // its query is sealed, and cut off when the delivery has ended
	State       State
	Attempts    int       // tries that were begun
	NextAt      time.Time // of a due one
	Tries       []Try     // the last MaxTries that have ended, oldest first
}

// Now returns the state with Sending for a due one whose try has begun and not ended. The service
// may have it by then.
func (d Delivery) Now() State {
	if d.State == Due && d.Attempts <= MaxTries && d.Attempts > len(d.Tries) {
		return Sending
	}
	return d.State
}

// Try is one request.
type Try struct {
	At     time.Time `json:"at"`
	Status int       `json:"status,omitempty"` // of the answer; 0: there was none
	Error  string    `json:"error,omitempty"`
	MS     int64     `json:"ms"`
}

// Limits bound the deliveries that wait.
type Limits struct {
	Waiting         int
	WaitingPerToken int
}

// Store is a database of deliveries and secrets; see package store. It is safe for concurrent use.
// Times are by the database's clock.
type Store interface {
	// Register stores an open delivery, before the row of its exec. fault.QueueFull when the limits
	// are reached.
	Register(ctx context.Context, d Delivery, limits Limits) error

	// Forget deletes an open delivery whose exec has no row.
	Forget(ctx context.Context, execID string) error

	// ForgetOld is Forget for deliveries that were registered so long ago.
	ForgetOld(ctx context.Context, age time.Duration) error

	// Tokens returns the tokens with deliveries whose NextAt has come, in no order.
	Tokens(ctx context.Context) ([]string, error)

	// Take claims the delivery of a token whose time came first, except deliveries to some hosts:
	// it counts an attempt, and no one else takes it before the end of the lease. Nil: there is
	// none.
	Take(ctx context.Context, requestedBy string, except []string, lease time.Duration) (*Delivery, error)

	// Finish stores the state, the URL and the tries of a delivery that the caller has taken; a due
	// one comes again after the delay. It does nothing when another node has taken it since, which
	// Attempts tells.
	Finish(ctx context.Context, d Delivery, delay time.Duration) error

	// Delivery returns the delivery of an exec; nil if it has none.
	Delivery(ctx context.Context, execID string) (*Delivery, error)

	// Waiting counts deliveries that are due.
	Waiting(ctx context.Context) (int, error)

	// SetSecret stores the sealed secret of a token, with its administrative event. The one before
	// stays valid for a time.
	SetSecret(ctx context.Context, requestedBy string, sealed []byte, keep time.Duration) error

	// Secrets returns the sealed secrets of a token that are valid, the newest first.
	Secrets(ctx context.Context, requestedBy string) ([][]byte, error)

	// SetDefault stores the default address of a token that has a secret, with its administrative
	// event, which names the host only. An empty address removes it.
	SetDefault(ctx context.Context, requestedBy, url, host string) error

	// Default returns the default address of a token; empty if it has none.
	Default(ctx context.Context, requestedBy string) (string, error)
}
