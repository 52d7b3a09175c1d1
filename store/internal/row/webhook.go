package row

import (
	"context"
	"encoding/json"
	"time"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/runner/webhooks"
)

// Webhooks implements webhooks.Store.
type Webhooks struct {
	Database
	Lock string // as in Jobs
}

const deliveryColumns = "exec_id, requested_by, host, url, state, attempts, next_at, tries"

func scanDelivery(scan Scan) (d webhooks.Delivery, err error) {
	err = scan(&d.ExecID, &d.RequestedBy, &d.Host, &d.URL, (*string)(&d.State), &d.Attempts, timeInto{&d.NextAt}, jsonInto{&d.Tries})
	if d.State != webhooks.Due {
		d.NextAt = time.Time{}
	}
	return d, err
}

// Register implements webhooks.Store.
func (db Webhooks) Register(ctx context.Context, d webhooks.Delivery, limits webhooks.Limits) error {
	args := Params{Text(d.ExecID), Text(d.RequestedBy), Text(d.Host), Text(d.URL), int64(limits.WaitingPerToken), int64(limits.Waiting)}
	now := db.Now(&args)
	const waiting = "(SELECT count(*) FROM webhook_deliveries WHERE state IN ('open', 'due')"
	_, stored, err := One(ctx, db.Write, Value[string],
		"INSERT INTO webhook_deliveries (exec_id, requested_by, host, url, state, created_at, next_at)"+
			" SELECT $1, $2, $3, $4, 'open', "+now+", "+now+" WHERE "+waiting+" AND requested_by = $2) < $5 AND "+waiting+
			") < $6 RETURNING exec_id", args...)
	if err == nil && !stored {
		e := fault.New(fault.QueueFull,
			"%d webhooks of this token, or %d of all tokens, were not delivered yet; try again later, or leave callback_url out",
			limits.WaitingPerToken, limits.Waiting)
		e.RetryAfter = 5 * time.Second
		err = e
	}
	return err
}

// noRow is the condition that the exec of a delivery has no row.
const noRow = " AND NOT EXISTS (SELECT 1 FROM sandbox_execs AS e WHERE e.exec_id = webhook_deliveries.exec_id)"

// Forget implements webhooks.Store.
func (db Webhooks) Forget(ctx context.Context, execID string) error {
	return db.Write(ctx, nil, "DELETE FROM webhook_deliveries WHERE exec_id = $1 AND state = 'open'"+noRow, Text(execID))
}

// ForgetOld implements webhooks.Store.
func (db Webhooks) ForgetOld(ctx context.Context, age time.Duration) error {
	var args Params
	return db.Write(ctx, nil, "DELETE FROM webhook_deliveries WHERE state = 'open' AND created_at < "+db.Ago(&args, age)+noRow, args...)
}

// Tokens implements webhooks.Store. It jumps in the index from one token to the next.
func (db Webhooks) Tokens(ctx context.Context) ([]string, error) {
	var args Params
	statement := "WITH RECURSIVE heads (token) AS (SELECT (SELECT min(requested_by) FROM webhook_deliveries WHERE state = 'due')" +
		" UNION ALL SELECT (SELECT min(d.requested_by) FROM webhook_deliveries AS d WHERE d.state = 'due' AND d.requested_by > " +
		"heads.token) FROM heads WHERE heads.token IS NOT NULL)" +
		" SELECT token FROM heads WHERE token IS NOT NULL AND (SELECT min(d.next_at) FROM webhook_deliveries AS d WHERE d.state = 'due' " +
		"AND d.requested_by = heads.token) <= " + db.Now(&args)
	return All(ctx, db.Query, Value[string], statement, args...)
}

// Take implements webhooks.Store.
func (db Webhooks) Take(ctx context.Context, requestedBy string, except []string, lease time.Duration) (*webhooks.Delivery, error) {
	args := Params{Text(requestedBy), db.Set(Texts(except))}
	until, now := db.Ago(&args, -lease), db.Now(&args)
	d, found, err := One(ctx, db.Write, scanDelivery, "UPDATE webhook_deliveries SET attempts = attempts + 1, next_at = "+until+
		" WHERE state = 'due' AND exec_id = (SELECT exec_id FROM webhook_deliveries WHERE state = 'due' AND requested_by = $1 AND "+
		"next_at <= "+now+
		" AND NOT "+db.Hidden("host")+db.In("$2")+" ORDER BY next_at, exec_id LIMIT 1"+db.Lock+") RETURNING "+deliveryColumns, args...)
	if err != nil || !found {
		return nil, err
	}
	return &d, nil
}

// Finish implements webhooks.Store.
func (db Webhooks) Finish(ctx context.Context, d webhooks.Delivery, delay time.Duration) error {
	tries, err := json.Marshal(d.Tries)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the tries of a webhook cannot be stored")
	}
	args := Params{Text(d.ExecID), int64(d.Attempts), string(d.State), Text(string(tries)), Text(d.URL)}
	return db.Write(ctx, nil, "UPDATE webhook_deliveries SET state = $3, tries = $4, url = $5, next_at = "+db.Ago(&args, -delay)+
		" WHERE exec_id = $1 AND attempts = $2 AND state = 'due'", args...)
}

// Delivery implements webhooks.Store.
func (db Webhooks) Delivery(ctx context.Context, execID string) (*webhooks.Delivery, error) {
	d, found, err := One(ctx, db.Query, scanDelivery, "SELECT "+deliveryColumns+" FROM webhook_deliveries WHERE exec_id = $1", Text(execID))
	if err != nil || !found {
		return nil, err
	}
	return &d, nil
}

// Waiting implements webhooks.Store.
func (db Webhooks) Waiting(ctx context.Context) (int, error) {
	n, _, err := One(ctx, db.Query, Value[int], "SELECT count(*) FROM webhook_deliveries WHERE state = 'due'")
	return n, err
}

// SetSecret implements webhooks.Store.
func (db Webhooks) SetSecret(ctx context.Context, requestedBy string, sealed []byte, keep time.Duration) error {
	args := Params{Text(requestedBy), sealed}
	return db.withEvent(ctx, nil, admin.WebhookSecret, requestedBy, nil, "INSERT INTO webhook_secrets (requested_by, sealed) VALUES ($1, "+
		"$2) ON CONFLICT (requested_by) DO UPDATE SET sealed = excluded.sealed,"+
		" previous = webhook_secrets.sealed, previous_until = "+db.Ago(&args, -keep)+" RETURNING requested_by", args...)
}

// Secrets implements webhooks.Store.
func (db Webhooks) Secrets(ctx context.Context, requestedBy string) ([][]byte, error) {
	args := Params{Text(requestedBy)}
	now := db.Now(&args)
	return All(ctx, db.Query, Value[[]byte], "SELECT sealed FROM (SELECT 1 AS n, sealed FROM webhook_secrets WHERE requested_by = $1"+
		" UNION ALL SELECT 2, previous FROM webhook_secrets WHERE requested_by = $1 AND previous IS NOT NULL AND previous_until > "+now+
		") AS s ORDER BY n", args...)
}

// SetDefault implements webhooks.Store.
func (db Webhooks) SetDefault(ctx context.Context, requestedBy, url, host string) error {
	return db.withEvent(ctx, nil, admin.WebhookDefault, requestedBy, map[string]string{"host": host},
		"UPDATE webhook_secrets SET callback_url = $2 WHERE requested_by = $1 AND callback_url <> $2 RETURNING requested_by",
		Text(requestedBy), Text(url))
}

// Default implements webhooks.Store.
func (db Webhooks) Default(ctx context.Context, requestedBy string) (string, error) {
	url, _, err := One(ctx, db.Query, Value[string], "SELECT callback_url FROM webhook_secrets WHERE requested_by = $1", Text(requestedBy))
	return url, err
}
