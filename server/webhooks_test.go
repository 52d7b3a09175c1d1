package server

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"secbox/runner/webhooks"
)

// TestPageOfWebhooksHasTheLimits: docs/webhooks.md gives the numbers that are in force.
func TestPageOfWebhooksHasTheLimits(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`A token may\s+have ([\d,]+) webhooks that were not delivered yet, and all tokens together\s+([\d,]+);`).FindSubmatch(page)
	if found == nil {
		t.Fatal("the page does not give the limits")
	}
	number := func(text []byte) int {
		n, err := strconv.Atoi(strings.ReplaceAll(string(text), ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := (webhooks.Limits{WaitingPerToken: number(found[1]), Waiting: number(found[2])}); got != webhookLimits {
		t.Errorf("the page gives %+v, in force are %+v", got, webhookLimits)
	}
}
