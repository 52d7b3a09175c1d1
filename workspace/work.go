package workspace

import (
	"os"

	"secbox/workspace/tree"
)

// Work opens the project's work/.
func (p *Project) Work() (*tree.Tree, error) {
	p.mark()
	work, err := p.openPart(workDir)
	if err != nil {
		return nil, err
	}
	return tree.NewIn(work, host{p}), nil
}

// Inputs opens the project's inputs/, for reading.
func (p *Project) Inputs() (*os.Root, error) {
	p.mark()
	return p.openPart(inputsDir)
}

// Stage makes an empty directory for something that will be put into the project's work/.
func (p *Project) Stage() (*tree.Staged, error) {
	staging, err := host{p}.Staging()
	if err != nil {
		return nil, tree.Failed(err, "the project %s has no room to work in", p.id)
	}
	s, err := tree.NewStaged(staging, p.w.TempName(), p.w.owner())
	if err != nil {
		staging.Close()
		return nil, tree.Failed(err, "the project %s has no room to work in", p.id)
	}
	return s, nil
}

// host is a project as the tree.Host of its work/.
type host struct{ *Project }

// Staging opens the project's .staging, which is made when it is missing.
func (h host) Staging() (*os.Root, error) {
	root, err := h.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	h.state.mu.Lock()
	err = h.stage(root)
	h.state.mu.Unlock()
	if err != nil {
		return nil, err
	}
	staging, _, err := tree.OpenDir(root, stagingDir)
	return staging, err
}

// TempName implements tree.Host.
func (h host) TempName() string { return h.w.TempName() }

// Traits implements tree.Host.
func (h host) Traits() tree.Traits {
	return tree.Traits{Owner: h.w.owner(), CaseBlind: h.w.caseBlind, Now: h.w.opts.Now}
}

// Still implements tree.Host.
func (h host) Still() func() bool {
	began := h.state.begun.Load()
	still := h.state.execs.Load() == 0
	return func() bool { return still && h.state.begun.Load() == began }
}
