package console

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

const tokenRows = 100 // of a page

// tokens lists the tokens.
func (c *Console) tokens(req *request) (ui.Page, error) {
	p, err := c.readTokens(req)
	return ui.Page{Title: "Tokens", Body: view.Tokens(p)}, err
}

// readTokens reads the page that the address asks for; a form's has no parameters.
func (c *Console) readTokens(req *request) (view.TokensPage, error) {
	before := req.query.Get("before")
	p := view.TokensPage{
		Form: view.TokenForm{ID: uuid.Must(uuid.NewV7()).String()}, Revoked: req.query.Get("revoked") == "1",
		Pager: view.Pager{First: before == "", Here: req.here().With("before", "")},
	}
	if revoked := req.query.Get("revoked"); revoked != "" && revoked != "1" {
		return p, fault.BadField("revoked", "must be 1, which shows revoked tokens, too, or be left out")
	}
	if !p.First {
		if _, err := c.findToken(req, before); err != nil {
			return p, err
		}
	}
	rows, err := c.cfg.Tokens.Page(req.ctx(), before, p.Revoked, tokenRows+1)
	if err != nil {
		return p, err
	}
	if p.Rows = rows; len(rows) > tokenRows {
		p.Rows = rows[:tokenRows]
		p.SetNext("before", rows[tokenRows-1].ID)
	}
	if len(rows) == 0 && p.First {
		any, err := c.cfg.Tokens.Page(req.ctx(), "", true, 1)
		if err != nil {
			return p, err
		}
		p.None = len(any) == 0
	}
	return p, nil
}

// createToken shows the secret of a new token on its answer, and nowhere else.
func (c *Console) createToken(req *request) (ui.Page, error) {
	asked := view.TokenForm{
		ID: req.form.Get("id"), Name: strings.TrimSpace(req.form.Get("name")), Role: req.form.Get("role"),
		UserID:   strings.TrimSpace(req.form.Get("user_id")),
		Projects: req.form.Get("projects"), Agents: req.form.Get("agents"), Users: req.form.Get("users"),
	}
	made, secret, err := c.cfg.Tokens.Create(req.ctx(), tokens.Spec{
		ID: asked.ID, Name: asked.Name, Role: tokens.Role(asked.Role), Projects: list(asked.Projects), Agents: list(asked.Agents),
		Users: list(asked.Users), UserID: asked.UserID,
	})
	if fault.Is(err, fault.InvalidRequest) {
		p, readErr := c.readTokens(req)
		if readErr != nil {
			return ui.Page{}, readErr
		}
		asked.ID = p.Form.ID
		p.Form = asked
		return withRefusal(ui.Page{Title: "Tokens", Body: view.Tokens(p)}, err)
	}
	if err != nil {
		if t, unknown := c.findToken(req, asked.ID); unknown == nil { // the form was sent again, such as by a reload
			return ui.Page{
				Title: "The token exists already", Crumbs: view.TokenCrumbs(), Body: view.TokenExists(t),
				Status: http.StatusConflict,
			}, nil
		}
	}
	return ui.Page{Title: "New token", Crumbs: view.TokenCrumbs(), Body: view.NewToken(made, secret)}, err
}

// findToken returns the token with an id.
func (c *Console) findToken(req *request, id string) (tokens.Token, error) {
	t, err := c.cfg.Tokens.ByID(req.ctx(), id)
	if fault.Is(err, fault.UnknownToken) {
		err = fault.New(fault.UnknownToken, "there is no token %s; the list has those that there are", ui.Cut(id, 100))
	}
	return t, err
}

// list splits a text at commas and white space.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

// token asks whether a token is to be revoked.
func (c *Console) token(req *request) (ui.Page, error) {
	t, err := c.findToken(req, req.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	last := false
	if t.Role == tokens.Admin {
		other, err := c.cfg.Tokens.OtherAdmin(req.ctx(), t.ID)
		if err != nil {
			return ui.Page{}, err
		}
		last = !other
	}
	return ui.Page{Title: "Token " + ui.Cut(t.Name, 100), Crumbs: view.TokenCrumbs(), Body: view.Token(t, t.ID == req.caller.ID, last)}, nil
}

// revokeToken revokes a token.
func (c *Console) revokeToken(req *request) (ui.Address, error) {
	_, err := c.cfg.Tokens.Revoke(req.ctx(), req.Param("id"))
	return ui.Link("tokens"), err
}
