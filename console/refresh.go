package console

import "secbox/fault"

// isLive reports whether the page refreshes itself, which its address can turn off.
func (req *request) isLive(bad *fault.Fields) bool {
	live := req.query.Get("live")
	if live != "" && live != "off" {
		bad.Add("live", "must be off or left out")
	}
	return live == ""
}
