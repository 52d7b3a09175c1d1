package feishu

import (
	"context"
	"time"

	"secbox/fault"
)

// renewBefore is how long before its end a token is replaced. Feishu issues a new one in the last
// 30 minutes of two hours, and both are valid then.
const renewBefore = 10 * time.Minute

// tenantToken is the app's access to its tenant.
type tenantToken struct {
	value   string
	renewAt time.Time
}

// accessToken returns a token other than refused. Callers at the same time wait for one request.
func (c *Client) accessToken(ctx context.Context, refused string) (string, error) {
	select {
	case c.fetching <- struct{}{}:
		defer func() { <-c.fetching }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if c.token.value != "" && c.token.value != refused && c.now().Before(c.token.renewAt) {
		return c.token.value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := c.post("/open-apis/auth/v3/tenant_access_token/internal",
		map[string]string{"app_id": c.appID, "app_secret": c.appSecret})(ctx)
	if err != nil {
		return "", err
	}
	began := c.now()
	resp, err := c.http.Do(req)
	if err != nil {
		return "", fault.Wrap(fault.UpstreamFailed, err, "Feishu does not answer; try again later")
	}
	defer resp.Body.Close()
	var got struct {
		answer
		Token  string `json:"tenant_access_token"`
		Expire int64  `json:"expire"` // seconds
	}
	if err := decode(resp, &got); err != nil {
		return "", err
	}
	got.status = resp.StatusCode
	if !got.ok() || got.Token == "" {
		return "", c.refusal(got.answer, got.Token)
	}
	valid := time.Duration(min(max(got.Expire, 0), 24*3600)) * time.Second
	c.token = tenantToken{value: got.Token, renewAt: began.Add(valid - min(renewBefore, valid/2))}
	return got.Token, nil
}
