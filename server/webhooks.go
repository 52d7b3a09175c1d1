package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/api"
	"secbox/runner/webhooks"
)

// webhookLimits bound the webhooks that were not delivered yet. Each new one counts the others,
// which takes some milliseconds for so many.
var webhookLimits = webhooks.Limits{Waiting: 50_000, WaitingPerToken: 5_000}

// callbacks are the webhooks of requests.
func (s *Server) callbacks() webhooks.Registry {
	return webhooks.Registry{
		Policy: s.settings.Webhooks.Policy(), Store: s.db.Webhooks(), Secrets: webhooks.Secrets{Store: s.db.Webhooks(), Key: s.key},
		Limits: webhookLimits,
	}
}

// deliverWebhooks makes deliveries until ctx ends. It does nothing while the settings allow none:
// then what is due waits.
func (s *Server) deliverWebhooks(ctx context.Context) {
	hooks := s.callbacks()
	if !hooks.Policy.On() {
		return
	}
	d := webhooks.NewDeliverer(webhooks.Config{
		Policy: hooks.Policy, Store: hooks.Store, Secrets: hooks.Secrets, Records: s.audit, Body: api.CallbackBody, Logger: s.log,
	})
	gauge(s.registry, "secbox_webhooks_due",
		"Webhooks that are due, also those that wait for their next try, for all nodes; -1 if the database does not answer.", func() int {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			n, err := hooks.Store.Waiting(ctx)
			if err != nil {
				return -1
			}
			return n
		})
	for name, c := range map[string]struct {
		help string
		of   func(delivered, refused, gaveUp int64) int64
	}{
		"secbox_webhooks_delivered_total": {"Webhooks that services have taken from this node.", func(n, _, _ int64) int64 { return n }},
		"secbox_webhook_tries_failed_total": {
			"Requests of webhooks of this node that were not taken.",
			func(_, n, _ int64) int64 { return n },
		},
		"secbox_webhooks_given_up_total": {
			"Webhooks that this node has given up, after their last try or a 410.",
			func(_, _, n int64) int64 { return n },
		},
	} {
		s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: c.help},
			func() float64 { return float64(c.of(d.Counts())) }))
	}
	d.Run(ctx)
}
