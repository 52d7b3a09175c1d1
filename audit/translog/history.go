package translog

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"secbox/audit/translog/proof"
)

// Check returns when the newest event of an exec happened. It fails, with the reason, unless each
// event has the hash of its entry, the events are a possible history of an exec, and the row agrees
// with them. entries are the log's entries of the events. Whether the tree has the entries is not
// checked.
func (x Exec) Check(entries [][]byte) (newest time.Time, err error) {
	if x.Row == nil || len(x.Events) == 0 {
		return newest, errors.New("it has no row or no events")
	}
	documents, indexes := make([]proof.Document, len(x.Events)), make([]int64, len(x.Events))
	for i, e := range x.Events {
		documents[i], indexes[i] = *e.document(), e.Index
		entry := proof.Entry(e.Salt, documents[i].Canonical())
		if e.Index < 0 || len(e.Salt) != proof.SaltSize || !bytes.Equal(entry[:], entries[i]) {
			return newest, fmt.Errorf("event %d is not the one in the transparency log", e.Seq)
		}
		if e.At.After(newest) {
			newest = e.At
		}
	}
	history, err := proof.NewHistory(documents)
	if err == nil {
		err = history.Check(x.ID, indexes)
	}
	if err != nil {
		return newest, err
	}
	differences, _, err := history.Compare(*x.Row)
	if err == nil && len(differences) > 0 {
		err = fmt.Errorf("its row is not as its events say: %s", differences[0])
	}
	for _, at := range []time.Time{x.Row.CreatedAt, x.Row.EndedAt} { // by the clocks of nodes
		if at.After(newest) {
			newest = at
		}
	}
	return newest, err
}
