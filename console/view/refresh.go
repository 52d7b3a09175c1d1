package view

// The times between two refreshes of a live page.
const (
	refreshEvery = "every 5s"
	refreshSoon  = "every 1s" // while counts are being made
)
