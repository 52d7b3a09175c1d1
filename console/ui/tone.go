package ui

import "secbox/audit"

// tone is the class of a state's colour.
func tone(s audit.Status) string {
	switch s {
	case audit.Succeeded:
		return "good"
	case audit.Failed, audit.Timeout, audit.OOMKilled, audit.Errored:
		return "bad"
	case audit.Rejected, audit.Lost, audit.Canceled:
		return "warn"
	case audit.Queued, audit.Running:
		return "busy"
	}
	return ""
}
