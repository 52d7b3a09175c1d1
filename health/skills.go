package health

import (
	"fmt"

	"secbox/skills"
)

// Skills counts the skills of the catalog.
type Skills struct {
	Loaded int `json:"loaded"` // can be invoked
	Broken int `json:"broken"` // folders that cannot
}

func (c *Checker) skills() Skills {
	if c.cfg.Skills == nil {
		return Skills{}
	}
	now := c.cfg.Skills()
	return Skills{Loaded: len(now.Skills()), Broken: len(now.Broken())}
}

// maxSkillProblems is the most broken skills in a report, so that they do not hide other problems.
const maxSkillProblems = 5

// skillProblems reports the first broken skills. Execs run without them, so they are warnings.
func (c *Checker) skillProblems() []Problem {
	if c.cfg.Skills == nil {
		return nil
	}
	broken := c.cfg.Skills().Broken()
	var out []Problem
	for i, b := range broken {
		if i == maxSkillProblems {
			out = append(out, Problem{
				Check: "skills", Reason: fmt.Sprintf("%d more skills are broken", len(broken)-i),
				Remedy: "the console's page Skills lists them all, and so do GET /skills?broken=true and `core-api skills lint`",
			})
			break
		}
		out = append(out, Problem{
			Check: "skills", Reason: fmt.Sprintf("the skill %q (%s) cannot be used: %s", b.Folder, b.Source, firstProblem(b)),
			Remedy: "correct it, or remove the folder; a change is noticed without a restart, and `core-api skills lint` checks it " +
				"beforehand",
		})
	}
	return out
}

func firstProblem(b skills.Broken) string {
	if len(b.Problems) == 0 {
		return "the reason is not known"
	}
	p := b.Problems[0]
	where := p.File
	if p.Pointer != "" {
		where += " at " + p.Pointer
	}
	if where != "" {
		where += ": "
	}
	if more := len(b.Problems) - 1; more > 0 {
		return fmt.Sprintf("%s%s (and %d more)", where, p.Reason, more)
	}
	return where + p.Reason
}
