package feishu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"secbox/fault"
)

const (
	maxAnswerBytes  = 1 << 20
	maxMessageRunes = 200 // of Feishu's own words in an error
	maxTries        = 4   // of a request that Feishu has refused as too frequent
	maxWait         = time.Minute
	answerTimeout   = time.Minute      // from the end of a request to its answer
	callTimeout     = 10 * time.Minute // of one request with all its tries; for 30 MB this is 400 kbit/s
)

// Config is the configuration of a Client.
type Config struct {
	BaseURL   string // https://open.feishu.cn, https://open.larksuite.com; http only on this machine
	AppID     string
	AppSecret string
}

// Client calls Feishu's API as one app. Safe for concurrent use.
type Client struct {
	base, appID, appSecret string
	http                   *http.Client
	now                    func() time.Time
	wait                   func(context.Context, time.Duration) error
	stall                  time.Duration

	drive    chan struct{} // holds a value during a call of the drive, which takes one at a time
	fetching chan struct{} // holds a value while a token is fetched
	token    tenantToken   // used only while fetching holds a value
}

// New makes a Client. It sends nothing yet. fault.InvalidSettings.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.BaseURL)
	if err != nil || base.Host == "" || base.User != nil || strings.Trim(base.Path, "/") != "" || base.RawQuery != "" ||
		base.Fragment != "" ||
		base.Scheme != "https" && (base.Scheme != "http" || !loopback(base.Hostname())) {
		return nil, fault.New(fault.InvalidSettings, "feishu.base_url must be https://host without a path, such as https://open.feishu.cn")
	}
	if cfg.AppID == "" || cfg.AppSecret == "" {
		return nil, fault.New(fault.InvalidSettings, "feishu.app_id and CORE_API_FEISHU_APP_SECRET must both be set")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	transport.DisableCompression = true // a length is the content's
	return &Client{
		base: base.Scheme + "://" + base.Host, appID: cfg.AppID, appSecret: cfg.AppSecret, now: time.Now, wait: sleep, stall: stallTimeout,
		drive: make(chan struct{}, 1), fetching: make(chan struct{}, 1),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // another address must not get the token
		}},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Codes of Feishu's answers.
const (
	codeMissingToken  = 99991661
	codeInvalidToken  = 99991663
	codeExpiredToken  = 99991677
	codeTooFrequent   = 99991400
	codeMessageLimit  = 11232   // of all messages of the tenant
	codeChatLimit     = 230020  // of one chat
	codeDriveRetry    = 1061045 // drive takes no calls at once
	codeNoPermission  = 99991672
	codeFileNotFound  = 234003
	codeMessageAbsent = 230002
)

// answer is the JSON of every answer but a file.
type answer struct {
	Code int             `json:"code"`
	Msg  string          `json:"msg"`
	Data json.RawMessage `json:"data"`

	status int
	wait   time.Duration // that Feishu asks for
}

// call sends a request with the app's token, and decodes the data of the answer into data. request
// is called for each try.
func (c *Client) call(ctx context.Context, data any, request func(context.Context) (*http.Request, error)) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, a, err := c.exchange(ctx, request, false)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return err
	}
	if data == nil {
		return nil
	}
	if err := json.Unmarshal(a.Data, data); err != nil {
		return fault.Wrap(fault.UpstreamFailed, err, "Feishu's answer cannot be understood; is feishu.base_url right?")
	}
	return nil
}

// callDrive is call for the drive.
func (c *Client) callDrive(ctx context.Context, data any, request func(context.Context) (*http.Request, error)) error {
	select {
	case c.drive <- struct{}{}:
		defer func() { <-c.drive }()
		return c.call(ctx, data, request)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exchange sends a request until it is not refused for its token (once more) or its frequency. With
// stream, a successful answer is a file: the caller must close its body.
func (c *Client) exchange(ctx context.Context, request func(context.Context) (*http.Request, error), stream bool) (*http.Response, answer,
	error,
) {
	token, err := c.accessToken(ctx, "")
	if err != nil {
		return nil, answer{}, err
	}
	renewed := false
	for try := 1; ; try++ {
		req, err := request(ctx)
		if err != nil {
			return nil, answer{}, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, a, err := c.roundTrip(req, stream)
		if err != nil || resp != nil || a.ok() {
			return resp, a, err
		}
		switch {
		case !renewed && slices.Contains([]int{codeMissingToken, codeInvalidToken, codeExpiredToken}, a.Code):
			renewed = true
			if token, err = c.accessToken(ctx, token); err != nil {
				return nil, answer{}, err
			}
		case a.tooFrequent() && try < maxTries && a.wait <= maxWait:
			if err := c.wait(ctx, a.wait); err != nil {
				return nil, answer{}, err
			}
		default:
			return nil, a, c.refusal(a, token)
		}
	}
}

// roundTrip sends one request. It returns the response only of a stream that succeeded.
func (c *Client) roundTrip(req *http.Request, stream bool) (*http.Response, answer, error) {
	resp, err := c.http.Do(req)
	if req.Body != nil {
		_ = req.Body.Close() // the transport may do so later
	}
	if err != nil {
		if failed, ok := req.Body.(interface{ Err() error }); ok && failed.Err() != nil {
			return nil, answer{}, failed.Err()
		}
		if errors.Is(req.Context().Err(), context.Canceled) {
			return nil, answer{}, req.Context().Err()
		}
		return nil, answer{}, fault.Wrap(fault.UpstreamFailed, err, "Feishu does not answer; try again later")
	}
	if stream && resp.StatusCode == http.StatusOK {
		return resp, answer{}, nil
	}
	defer resp.Body.Close()
	a := answer{Code: -1}
	if decode(resp, &a) != nil {
		a = answer{Code: -1, Msg: "the answer is not JSON, too long or cut off"}
	}
	a.status = resp.StatusCode
	for _, name := range []string{"x-ogw-ratelimit-reset", "Retry-After"} {
		if seconds, err := strconv.Atoi(resp.Header.Get(name)); err == nil && seconds >= 0 {
			a.wait = time.Duration(min(seconds, 24*3600)) * time.Second
			break
		}
	}
	if a.wait == 0 && a.tooFrequent() {
		a.wait = time.Second
	}
	return nil, a, nil
}

// decode reads an answer of JSON.
func decode(resp *http.Response, into any) error {
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && len(content) > maxAnswerBytes {
		err = errors.New("the answer is too long")
	}
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fault.Wrap(fault.UpstreamFailed, err, "Feishu's answer (HTTP %d) cannot be understood; is feishu.base_url right?",
			resp.StatusCode)
	}
	return nil
}

func (a answer) ok() bool { return a.Code == 0 && a.status == http.StatusOK }

func (a answer) tooFrequent() bool {
	return a.status == http.StatusTooManyRequests ||
		slices.Contains([]int{codeTooFrequent, codeMessageLimit, codeChatLimit, codeDriveRetry}, a.Code)
}

// refusal is the error for an answer that is not a success. It has Feishu's words, without the
// token and the secret.
func (c *Client) refusal(a answer, token string) error {
	words := a.Msg
	for _, secret := range []string{token, c.appSecret} {
		if secret != "" {
			words = strings.ReplaceAll(words, secret, "(secret)")
		}
	}
	words = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(words, "\uFFFD"))
	if runes := []rune(words); len(runes) > maxMessageRunes {
		words = string(runes[:maxMessageRunes]) + "…"
	}
	code, remedy := fault.UpstreamFailed, ""
	switch {
	case a.tooFrequent():
		remedy = "; try again later"
	case a.Code == codeFileNotFound || a.Code == codeMessageAbsent || a.status == http.StatusNotFound:
		code, remedy = fault.UnknownFile, "; check the ids, and that the app's bot is in the chat"
	case a.Code == codeNoPermission || a.status == http.StatusForbidden:
		remedy = "; give the app this permission in Feishu's developer console"
	}
	e := fault.New(code, "Feishu refused it with code %d (HTTP %d): %s%s", a.Code, a.status, words, remedy)
	if a.tooFrequent() {
		e.RetryAfter = a.wait
	}
	return e
}

// post returns a function that makes a request with a JSON body.
func (c *Client) post(path string, body any) func(context.Context) (*http.Request, error) {
	return func(ctx context.Context) (*http.Request, error) {
		content, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("feishu: %w", err)
		}
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		return req, nil
	}
}
