package webhooks

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"secbox/audit/hmackey"
	"secbox/fault"
)

const (
	secretPrefix  = "whsec_"
	secretBytes   = 32
	secretPurpose = "webhook secret" // of the key that seals secrets
	queryPurpose  = "webhook query"  // of the key that seals queries of addresses

	// sealedPrefix begins a stored address whose query is sealed. Nodes of versions that cannot
	// open it refuse to call it.
	sealedPrefix = "sealed:"

	// KeepSecret is how long requests are signed with the previous secret, too, after a new one was
	// made.
	KeepSecret = 24 * time.Hour
)

// Secrets are the secrets of tokens. It is safe for concurrent use.
type Secrets struct {
	Store Store
	Key   hmackey.Key
}

// create makes a secret for a token and returns it.
func (s Secrets) create(ctx context.Context, requestedBy string) (string, error) {
	var random [secretBytes]byte
	rand.Read(random[:]) // never fails
	secret := secretPrefix + base64.StdEncoding.EncodeToString(random[:])
	if err := s.Store.SetSecret(ctx, requestedBy, s.Key.Seal(secretPurpose, requestedBy, []byte(secret)), KeepSecret); err != nil {
		return "", err
	}
	return secret, nil
}

// sealQuery returns an address as it is stored for an exec or a token: its query is sealed, since
// it often has a password.
func (s Secrets) sealQuery(name, url string) string {
	address, query, has := strings.Cut(url, "?")
	if !has {
		return url
	}
	return sealedPrefix + address + "?" + base64.RawURLEncoding.EncodeToString(s.Key.Seal(queryPurpose, name+" "+address, []byte(query)))
}

// openQuery returns the address that sealQuery stored, or an older version with its query in clear
// text.
func (s Secrets) openQuery(name, stored string) (string, error) {
	url, is := strings.CutPrefix(stored, sealedPrefix)
	if !is {
		return stored, nil
	}
	address, text, _ := strings.Cut(url, "?")
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		sealed, err = s.Key.Unseal(queryPurpose, name+" "+address, sealed)
	}
	if err != nil {
		return "", fault.New(fault.InvalidRequest, "the query of the address cannot be opened: another key sealed it, or it was altered")
	}
	return address + "?" + string(sealed), nil
}

// exist reports whether a token has a secret.
func (s Secrets) exist(ctx context.Context, requestedBy string) (bool, error) {
	sealed, err := s.Store.Secrets(ctx, requestedBy)
	return len(sealed) > 0, err
}

// sign sets the headers of Standard Webhooks, with a signature by each secret of a token that is
// valid.
func (s Secrets) sign(ctx context.Context, requestedBy, id string, at time.Time, body []byte, header http.Header) error {
	all, err := s.Store.Secrets(ctx, requestedBy)
	if err != nil {
		return err
	}
	var signatures []string
	for _, sealed := range all {
		secret, err := s.Key.Unseal(secretPurpose, requestedBy, sealed)
		if errors.Is(err, hmackey.ErrOtherKey) {
			continue // the operator has changed the key; the token needs a new secret
		}
		if err != nil {
			return fault.Wrap(fault.Internal, err,
				"the webhook secret was damaged in the database; make a new one with POST /webhooks/secret")
		}
		hook, err := standardwebhooks.NewWebhook(string(secret))
		if err != nil {
			return fault.Wrap(fault.Internal, err, "the webhook secret is malformed; make a new one with POST /webhooks/secret")
		}
		signature, err := hook.Sign(id, at, body)
		if err != nil {
			return fault.Wrap(fault.Internal, err, "cannot sign the webhook")
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) == 0 {
		return fault.New(fault.InvalidRequest,
			"the token has no webhook secret that this node can open; make one with POST /webhooks/secret")
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
