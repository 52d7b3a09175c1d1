package console

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/console/ui"
	"secbox/fault"
)

const tokenRows = 100 // of a page

// tokensPage is a page of the tokens, newest first.
type tokensPage struct {
	rows    []tokens.Token
	revoked bool // shows revoked ones, too
	none    bool // there was never one
	next    ui.Address
	more    bool
	first   bool
	asked   tokenForm
}

// tokenForm is what the form for a new token asks for. Lists are as they were typed.
type tokenForm struct {
	id, name, role, projects, agents, users, userID string // id: chosen by the page, so that a form that is sent twice makes one token
}

// tokens lists the tokens.
func (c *Console) tokens(v *visit) (ui.Page, error) {
	p, err := c.readTokens(v)
	return ui.Page{Title: "Tokens", Body: tokensBody(p)}, err
}

// readTokens reads the page that the address asks for; a form's has no parameters.
func (c *Console) readTokens(v *visit) (tokensPage, error) {
	before := v.query.Get("before")
	p := tokensPage{asked: tokenForm{id: uuid.Must(uuid.NewV7()).String()}, revoked: v.query.Get("revoked") == "1", first: before == ""}
	if revoked := v.query.Get("revoked"); revoked != "" && revoked != "1" {
		return p, fault.BadField("revoked", "must be 1, which shows revoked tokens, too, or be left out")
	}
	if !p.first {
		if _, err := c.findToken(v, before); err != nil {
			return p, err
		}
	}
	rows, err := c.cfg.Tokens.Page(v.ctx(), before, p.revoked, tokenRows+1)
	if err != nil {
		return p, err
	}
	if p.rows = rows; len(rows) > tokenRows {
		p.rows, p.more = rows[:tokenRows], true
		p.next = v.here().With("before", rows[tokenRows-1].ID)
	}
	if len(rows) == 0 && p.first {
		any, err := c.cfg.Tokens.Page(v.ctx(), "", true, 1)
		if err != nil {
			return p, err
		}
		p.none = len(any) == 0
	}
	return p, nil
}

// createToken shows the secret of a new token on its answer, and nowhere else.
func (c *Console) createToken(v *visit) (ui.Page, error) {
	asked := tokenForm{
		id: v.form.Get("id"), name: strings.TrimSpace(v.form.Get("name")), role: v.form.Get("role"), userID: strings.TrimSpace(v.form.Get("user_id")),
		projects: v.form.Get("projects"), agents: v.form.Get("agents"), users: v.form.Get("users"),
	}
	made, secret, err := c.cfg.Tokens.Create(v.ctx(), tokens.Spec{
		ID: asked.id, Name: asked.name, Role: tokens.Role(asked.role), Projects: list(asked.projects), Agents: list(asked.agents), Users: list(asked.users), UserID: asked.userID,
	})
	if fault.Is(err, fault.InvalidRequest) {
		p, readErr := c.readTokens(v)
		if readErr != nil {
			return ui.Page{}, readErr
		}
		asked.id = p.asked.id
		p.asked = asked
		return unlessRefused(ui.Page{Title: "Tokens", Body: tokensBody(p)}, err)
	}
	if err != nil {
		if t, unknown := c.findToken(v, asked.id); unknown == nil { // the form was sent again, such as by a reload
			return ui.Page{Title: "The token exists already", Crumbs: tokenCrumbs(), Body: sentTwice(t), Status: http.StatusConflict}, nil
		}
	}
	return ui.Page{Title: "New token", Crumbs: tokenCrumbs(), Body: newTokenBody(made, secret)}, err
}

// findToken returns the token with an id.
func (c *Console) findToken(v *visit, id string) (tokens.Token, error) {
	t, err := c.cfg.Tokens.ByID(v.ctx(), id)
	if fault.Is(err, fault.UnknownToken) {
		err = noToken(id)
	}
	return t, err
}

// list splits a text at commas and white space.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

// token asks whether a token is to be revoked.
func (c *Console) token(v *visit) (ui.Page, error) {
	t, err := c.findToken(v, v.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	last := false
	if t.Role == tokens.Admin {
		other, err := c.cfg.Tokens.OtherAdmin(v.ctx(), t.ID)
		if err != nil {
			return ui.Page{}, err
		}
		last = !other
	}
	return ui.Page{Title: "Token " + ui.Cut(t.Name, 100), Crumbs: tokenCrumbs(), Body: tokenBody(t, t.ID == v.caller.ID, last)}, nil
}

// revokeToken revokes a token.
func (c *Console) revokeToken(v *visit) (ui.Address, error) {
	_, err := c.cfg.Tokens.Revoke(v.ctx(), v.Param("id"))
	return ui.Link("tokens"), err
}

func noToken(id string) error {
	return fault.New(fault.UnknownToken, "there is no token %s; the list has those that there are", ui.Cut(id, 100))
}

// tokenScope tells what a token is limited to.
func tokenScope(t tokens.Token) string {
	if t.Role == tokens.Runner {
		return "machine of " + t.UserID
	}
	var parts []string
	for _, l := range []struct {
		name   string
		values []string
	}{{"projects", t.Projects}, {"agents", t.Agents}, {"users", t.Users}} {
		if len(l.values) > 0 {
			parts = append(parts, l.name+" "+strings.Join(l.values, ", "))
		}
	}
	switch {
	case t.Role == tokens.Auditor:
		return "all records, to read"
	case len(parts) == 0:
		return "everything"
	}
	return strings.Join(parts, "; ")
}

func tokenRoles() []string {
	var names []string
	for _, r := range tokens.Roles() {
		names = append(names, string(r))
	}
	return names
}

func tokenCrumbs() []ui.Crumb { return []ui.Crumb{{Label: "Tokens", To: ui.Link("tokens")}} }

func (p tokensPage) showRevoked() string {
	if p.revoked {
		return "1"
	}
	return ""
}
