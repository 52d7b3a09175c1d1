//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// chaosHooks is a service that is told of the ends of execs. It answers each third exec's first
// request with 500.
type chaosHooks struct {
	server *httptest.Server
	mu     sync.Mutex
	verify *standardwebhooks.Webhook
	calls  map[string]int // of an exec
	wrong  []string
}

func newChaosHooks(t *testing.T) *chaosHooks {
	h := &chaosHooks{calls: map[string]int{}}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

// environ allows the nodes to call the service.
func (h *chaosHooks) environ() []string {
	return []string{
		"CORE_API_WEBHOOKS_ALLOW=" + strings.TrimPrefix(h.server.URL, "http://"), "CORE_API_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8",
		"CORE_API_WEBHOOKS_ALLOW_HTTP=true",
	}
}

// begin gets the secret from a node.
func (h *chaosHooks) begin(t *testing.T, l *chaosLoad) {
	t.Helper()
	a, err := l.send(time.Minute, http.MethodPost, l.c.nodes[0].url()+"/webhooks/secret", nil)
	if err != nil || a.Code != http.StatusOK {
		t.Fatalf("%v %d %s", err, a.Code, a.Body)
	}
	if h.verify, err = standardwebhooks.NewWebhook(a.json(t).str("secret")); err != nil {
		t.Fatal(err)
	}
}

func (h *chaosHooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the node was killed in the middle
	}
	var event struct {
		Data struct {
			ExecID string `json:"exec_id"`
			Status string `json:"status"`
		} `json:"data"`
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.verify.Verify(body, r.Header); err != nil {
		h.wrong = append(h.wrong, err.Error())
	}
	if err := json.Unmarshal(body, &event); err != nil || r.Header.Get("webhook-id") != "msg_"+event.Data.ExecID || event.Data.Status == "running" ||
		event.Data.Status == "queued" {
		h.wrong = append(h.wrong, fmt.Sprintf("%v: %s %s", err, r.Header.Get("webhook-id"), body))
	}
	h.calls[event.Data.ExecID]++
	if h.calls[event.Data.ExecID] == 1 && len(h.calls)%3 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// count waits until the service was told of each exec of a job with a webhook, and until all
// deliveries are made. A request that was refused while the database was away may leave one without
// a row, which is removed later; one that was refused otherwise has a row and no webhook.
func (h *chaosHooks) count(l *chaosLoad, rows map[string][]object) {
	t := l.c.t
	t.Helper()
	const undelivered = " FROM webhook_deliveries AS d WHERE state <> 'delivered' AND (state <> 'open' OR EXISTS (SELECT 1 FROM sandbox_execs AS e WHERE " +
		"e.exec_id = d.exec_id))"
	var untold []string
	registered := l.c.postgres.SQL(t, l.c.database, "SELECT exec_id FROM webhook_deliveries")
	refused := func(row object) bool {
		return row.str("status") == "rejected" || row.str("status") == "error" && row.str("started_at") == "" && !strings.Contains(registered,
			row.str("exec_id"))
	}
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Second) {
		untold = untold[:0]
		h.mu.Lock()
		for _, j := range l.jobs {
			for _, row := range rows[j.mark] {
				if id := row.str("exec_id"); j.is("webhook") && !refused(row) && h.calls[id] == 0 {
					untold = append(untold, brief([]object{row})...)
				}
			}
		}
		h.mu.Unlock()
		if len(untold) == 0 && l.c.postgres.SQL(t, l.c.database, "SELECT count(*)"+undelivered) == "0" || time.Now().After(deadline) {
			break
		}
	}
	for _, exec := range untold {
		t.Errorf("nobody was told of %s", exec)
	}
	if left := l.c.postgres.SQL(t, l.c.database, "SELECT state || ' ' || exec_id"+undelivered); left != "" {
		t.Errorf("webhooks are left: %s", left)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range h.wrong {
		t.Errorf("a webhook was wrong: %s", what)
	}
	calls := 0
	for _, n := range h.calls {
		calls += n
	}
	t.Logf("%d execs with a webhook, told by %d requests", len(h.calls), calls)
}
