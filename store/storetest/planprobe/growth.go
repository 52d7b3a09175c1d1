package planprobe

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Statement is one that a database has run.
type Statement struct {
	Text string
	Args []any
}

// Growth is why the time of a statement grows with the database.
type Growth struct {
	Whole []string // tables that it reads from end to end
	Sorts bool     // it sorts what it has read
	Text  string   // the plan's steps, one per line
}

// Watched returns the statements that a database runs during a call, each text once. Transactions'
// own are left out.
func Watched(db Database, call func() error) ([]Statement, error) {
	var mu sync.Mutex
	var out []Statement
	seen := map[string]bool{}
	stop := db.Watch(func(text string, args []any) {
		mu.Lock()
		defer mu.Unlock()
		if !seen[text] && !ofTransaction.MatchString(text) {
			seen[text] = true
			out = append(out, Statement{text, args})
		}
	})
	err := call()
	stop()
	mu.Lock()
	defer mu.Unlock()
	return out, err
}

// AtBest returns how the time of a statement grows in the plans in which the database does its best
// to read no whole table, and not to sort. A table that is read in the order of an index up to a
// limit is not read from end to end.
func AtBest(ctx context.Context, db Database, s Statement) (g Growth, err error) {
	plans, err := db.ExplainAtBest(ctx, s.Text, s.Args)
	if err != nil {
		return g, fmt.Errorf("%w: %s", err, s.Text)
	}
	for _, text := range plans {
		var one Growth
		if db.Kind() == "sqlite" {
			one = growthSQLite(s.Text, text)
		} else if one, err = growthPostgres(text); err != nil {
			return g, err
		}
		for _, table := range one.Whole {
			if !slices.Contains(g.Whole, table) {
				g.Whole = append(g.Whole, table)
			}
		}
		g.Sorts = g.Sorts || one.Sorts
		g.Text += one.Text
	}
	return g, nil
}

// lazy are the nodes that read no more rows than are asked of them.
var lazy = []string{
	"Limit", "Append", "Merge Append", "Nested Loop", "Subquery Scan", "Result", "LockRows", "Index Scan",
	"Index Only Scan", "ProjectSet",
}

func growthPostgres(text string) (g Growth, err error) {
	var explained []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &explained); err != nil || len(explained) != 1 {
		return g, fmt.Errorf("not one plan: %w: %s", err, text)
	}
	var walk func(n node, limited bool, indent string)
	walk = func(n node, limited bool, indent string) {
		g.Text += fmt.Sprintf("%s%s %s %s\n", indent, n.Type, n.Table, n.Index)
		limited = (limited || n.Type == "Limit") && slices.Contains(lazy, n.Type)
		switch {
		case strings.Contains(n.Type, "Sort"):
			g.Sorts = true
		case n.Type == "Seq Scan", n.Type == "Index Scan" && n.Cond == "" && !limited,
			n.Type == "Index Only Scan" && n.Cond == "" && !limited:
			g.Whole = append(g.Whole, n.Table)
		}
		for _, below := range n.Plans {
			walk(below, limited, indent+"  ")
		}
	}
	walk(explained[0].Plan, false, "")
	return g, nil
}

var limits = regexp.MustCompile(`\bLIMIT \$`)

func growthSQLite(statement, text string) Growth {
	g := Growth{Text: text + "\n", Sorts: strings.Contains(text, "TEMP B-TREE")}
	var made []string // subqueries, which are no tables
	for step := range strings.Lines(text) {
		words := strings.Fields(step)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "CO-ROUTINE", "MATERIALIZE":
			made = append(made, words[1])
		case "SCAN":
			name := words[1]
			ordered := strings.Contains(step, " INDEX ") && limits.MatchString(statement) && !g.Sorts
			if ordered || name == "json_each" || name == "CONSTANT" || strings.HasPrefix(name, "(") || slices.Contains(made, name) {
				continue
			}
			if table := regexp.MustCompile(`\b(\w+) AS ` + name + `\b`).FindStringSubmatch(statement); table != nil {
				name = table[1]
			}
			g.Whole = append(g.Whole, name)
		}
	}
	return g
}
