package row

import (
	"encoding/json"
	"time"

	"secbox/fault"
	"secbox/tokens"
)

// TokenColumns are the columns of tokens in the order of TokenValues and ScanToken; the hash follows them.
const TokenColumns = "id, name, role, projects, agents, users, user_id, created_at, revoked_at"

// TokenValues are the values of a token in the order of TokenColumns.
func TokenValues(t tokens.Token, encodeTime TimeEncoder) []any {
	scope := func(values []string) string {
		list, _ := json.Marshal(Texts(values)) // texts cannot fail
		return string(list)
	}
	var revoked any
	if t.Revoked() {
		revoked = encodeTime(t.RevokedAt.UTC().Truncate(time.Microsecond))
	}
	return []any{
		Text(t.ID), Text(t.Name), string(t.Role), scope(t.Projects), scope(t.Agents), scope(t.Users), Text(t.UserID),
		encodeTime(t.CreatedAt.UTC().Truncate(time.Microsecond)), revoked,
	}
}

// ScanToken reads TokenColumns and the columns after them into more.
func ScanToken(scan func(dest ...any) error, more ...any) (tokens.Token, error) {
	var t tokens.Token
	err := scan(append([]any{
		&t.ID, &t.Name, (*string)(&t.Role),
		jsonInto{&t.Projects},
		jsonInto{&t.Agents},
		jsonInto{&t.Users},
		&t.UserID,
		timeInto{&t.CreatedAt},
		timeInto{&t.RevokedAt},
	}, more...)...)
	for _, list := range []*[]string{&t.Projects, &t.Agents, &t.Users} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	return t, err
}

// FoundToken is the result of a look-up by hash.
func FoundToken(t tokens.Token, stored []byte, err error) (tokens.Token, tokens.Hash, error) {
	switch {
	case err != nil:
		return tokens.Token{}, tokens.Hash{}, err
	case t.ID == "":
		return tokens.Token{}, tokens.Hash{}, fault.New(fault.UnknownToken, "there is no token with this secret")
	case len(stored) != len(tokens.Hash{}):
		return tokens.Token{}, tokens.Hash{}, fault.New(fault.Internal, "the stored hash of token %s is damaged", t.ID)
	}
	return t, tokens.Hash(stored), nil
}
