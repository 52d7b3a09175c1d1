package view

import (
	"strings"

	"secbox/console/ui"
)

// mark returns the proof state of an exec in a word or two, its colour, and what it means.
func (p ProofState) mark() (word, tone, means string) {
	switch {
	case len(p.Differences) > 0:
		return "altered", "bad", "The record is not what its events and the transparency log say: the database was changed"
	case p.Problem != "":
		return "not proven", "warn", ui.Cut(p.Problem, 200)
	case p.Stopped != "":
		return "not in the log", "warn", "The transparency log does not have the newest event: signing is stopped, or behind"
	case p.Pending:
		return "not in the log yet", "", "The transparency log gets the newest event in a second or two"
	case p.Unsigned:
		return "in the log", "warn", "This node does not have the log's key, and could not verify the signature of its checkpoint"
	}
	return "in the log", "good", "The transparency log has every event of this exec" + p.until() + ", and the record is what they say"
}

// witnessed names the witnesses that have cosigned the newest event, as far as this node knows.
func (p ProofState) witnessed() (names []string) {
	for _, w := range p.Witnesses {
		if w.Has {
			names = append(names, ui.Cut(w.Name, 60))
		}
	}
	return names
}

// unwitnessed ends a sentence about the event, and says so if no witness is known to have cosigned.
func (p ProofState) unwitnessed() string {
	switch {
	case len(p.Witnesses) == 0:
		return "; no witness is asked to cosign the log."
	case len(p.witnessed()) == 0:
		return "; " + p.witnessText() + "."
	}
	return "."
}

// witnessText says by whom the event is witnessed.
func (p ProofState) witnessText() string {
	if names := p.witnessed(); len(names) > 0 {
		return "cosigned by " + strings.Join(names, ", ")
	}
	return "no witness has cosigned it since this node started"
}
