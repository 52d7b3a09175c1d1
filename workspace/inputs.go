package workspace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace/tree"
)

// MaxInputs is the most inputs of one exec: as many as a manifest lists artifacts.
const MaxInputs = tree.MaxEntries

// Input is a file for inputs/; Path is the requested one.
type Input struct {
	Path       string
	Content    []byte
	Executable bool `json:",omitempty"` // its mode is 0755, else 0644
}

// inputUse is the input of running execs at one path.
type inputUse struct {
	path       string
	sha256     [sha256.Size]byte
	executable bool
	holders    int
}

// staged is an input that is being written.
type staged struct {
	Input  // with the clean path
	sha256 [sha256.Size]byte
	key    string // the folded path
	field  string // what errors name
	shared bool   // a running exec uses the same content
	temp   string // its name in the project while it is written
}

// PutInputs writes files below inputs/, each by a rename, so that no exec reads half of one. Until
// release is called, these paths accept only the same content and mode, which are shared.
// Everything is checked before the first write. If a write fails afterwards, renamed files stay,
// but are not held. release may be called more than once.
//
// Paths that differ only by case or Unicode form, within one call or from a file in inputs/, are
// refused. Links below inputs/ are never followed: fault.InputConflict. Errors:
// fault.InvalidRequest naming inputs[i].path, fault.InputInUse, fault.InputConflict,
// fault.DiskFull. execID appears in messages only.
func (p *Project) PutInputs(execID string, in []Input) (release func(), err error) {
	if len(in) == 0 {
		return func() {}, nil
	}
	files, err := planInputs(in)
	if err != nil {
		return nil, err
	}

	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := p.admitInputs(root, files); err != nil {
		return nil, err
	}
	if err := p.writeInputs(root, files); err != nil {
		return nil, tree.Failed(err, "the inputs of exec %s cannot be written", execID)
	}

	for _, f := range files {
		use := p.state.uses[f.key]
		if use == nil {
			use = &inputUse{path: f.Path, sha256: f.sha256, executable: f.Executable}
			p.state.uses[f.key] = use
		}
		use.holders++
	}
	return sync.OnceFunc(func() { p.releaseInputs(files) }), nil
}

func (p *Project) releaseInputs(files []staged) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	for _, f := range files {
		use := p.state.uses[f.key]
		if use.holders--; use.holders == 0 {
			delete(p.state.uses, f.key)
		}
	}
}

// requestedPath is a file or directory that a request needs below inputs/.
type requestedPath struct {
	input int // the first that needs it
	path  string
	file  bool
}

// CheckInputs returns the clean paths of the requested ones, in their order, and makes those checks
// of PutInputs that need no disk: fault.InvalidRequest with every wrong inputs[i].path, or the
// first one that collides with another.
func CheckInputs(paths []string) (clean []string, err error) {
	if len(paths) > MaxInputs {
		return nil, fault.BadField("inputs", "has %d files, more than %d", len(paths), MaxInputs)
	}
	clean = make([]string, len(paths))
	var bad fault.Fields
	for i, requested := range paths {
		if clean[i], err = CleanInputPath(requested); err != nil {
			bad.Add(inputField(i), "%s", err)
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	taken := make(map[string]requestedPath, len(paths)) // by folded path: the files, and the directories that they need
	for i, file := range clean {
		key := pathadapter.FoldName(file)
		if other, ok := taken[key]; ok {
			return nil, fault.BadField(inputField(i), "is, on some systems, the same path as inputs[%d].path or a directory of it",
				other.input)
		}
		taken[key] = requestedPath{input: i, path: file, file: true}
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			folded := pathadapter.FoldName(dir)
			other, ok := taken[folded]
			if ok && other.file {
				return nil, fault.BadField(inputField(i), "needs a directory where inputs[%d].path is a file", other.input)
			}
			if ok && other.path != dir {
				return nil, fault.BadField(inputField(i), "has a directory that, on some systems, is the same as one of inputs[%d].path",
					other.input)
			}
			if ok {
				break // its tree.Parents are taken too
			}
			taken[folded] = requestedPath{input: i, path: dir}
		}
	}
	return clean, nil
}

func inputField(i int) string { return fmt.Sprintf("inputs[%d].path", i) }

// planInputs cleans the paths and refuses collisions within the request.
func planInputs(in []Input) ([]staged, error) {
	paths := make([]string, len(in))
	for i := range in {
		paths[i] = in[i].Path
	}
	clean, err := CheckInputs(paths)
	if err != nil {
		return nil, err
	}
	files := make([]staged, len(in))
	for i, file := range clean {
		input := in[i]
		input.Path = file
		files[i] = staged{Input: input, sha256: sha256.Sum256(input.Content), key: pathadapter.FoldName(file), field: inputField(i)}
	}
	return files, nil
}

// admitInputs checks the files against running execs and against the files in inputs/.
func (p *Project) admitInputs(root *os.Root, files []staged) error {
	inputs, err := p.openDir(root, inputsDir)
	if err != nil {
		return err
	}
	defer inputs.Close()
	seen := map[string]bool{} // checked directories
	for i := range files {
		f := &files[i]
		if use := p.state.uses[f.key]; use != nil {
			if use.sha256 != f.sha256 || use.executable != f.Executable {
				return refuseInput(fault.InputInUse, f, "a running exec was given %q with other content or another mode: give each job "+
					"its own directory, such as %q, or its own project, or wait until that exec ends",
					tree.CutName(use.path, 256), "t1/"+tree.CutName(f.Path, 256))
			}
			f.shared = use.path == f.Path
		}
		if err := checkParents(inputs, f, seen); err != nil {
			return err
		}
		fi, err := inputs.Lstat(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.shared = false // it was removed: write it again
		case err != nil:
			return tree.Failed(err, "cannot stat %s", f.field)
		case fi.IsDir():
			return refuseInput(fault.InputConflict, f, "%q is a directory in inputs/: use another path", f.Path)
		case !fi.Mode().IsRegular():
			return refuseInput(fault.InputConflict, f, "%q is a link or a special file in inputs/: remove it or use another path", f.Path)
		}
	}
	return p.checkSpellings(inputs, files)
}

// checkParents checks that existing parents of the file are real directories.
func checkParents(inputs *os.Root, f *staged, seen map[string]bool) error {
	for _, dir := range tree.Parents(f.Path) {
		if seen[dir] {
			continue
		}
		fi, err := inputs.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return tree.Failed(err, "cannot stat %s", f.field)
		case !fi.IsDir():
			return refuseInput(fault.InputConflict, f, "%q is a file or a link in inputs/, not a directory: remove it or use another path",
				dir)
		}
		seen[dir] = true
	}
	return nil
}

// checkSpellings refuses new names in inputs/ that some systems treat as equal to existing ones. A
// directory is read only for names that it does not have, unless the file system accepts other
// spellings.
func (p *Project) checkSpellings(inputs *os.Root, files []staged) error {
	added := map[string]map[string]string{} // by directory: the new names, by their folded form
	owner := map[string]*staged{}           // by path: a file that needs it
	for i := range files {
		f := &files[i]
		for end := range len(f.Path) + 1 {
			if end < len(f.Path) && f.Path[end] != '/' || owner[f.Path[:end]] != nil {
				continue
			}
			owner[f.Path[:end]] = f
			if _, err := inputs.Lstat(f.Path[:end]); err == nil && !p.w.caseBlind {
				continue
			}
			dir, name := tree.SplitPath(f.Path[:end])
			if added[dir] == nil {
				added[dir] = map[string]string{}
			}
			added[dir][pathadapter.FoldName(name)] = name
		}
	}
	for dir, names := range added {
		name, found, err := tree.OtherSpelling(inputs, dir, names)
		if err != nil {
			return tree.Failed(err, "the names in inputs/ cannot be read")
		}
		if found != "" {
			return refuseInput(fault.InputConflict, owner[path.Join(dir, name)],
				"inputs/ has %q, and some systems take %q for the same name: use that spelling or another path",
				tree.CutName(path.Join(dir, found), 256), tree.CutName(path.Join(dir, name), 256))
		}
	}
	return nil
}

func refuseInput(code fault.Code, f *staged, format string, args ...any) error {
	err := fault.New(code, format, args...)
	err.Fields = []fault.Field{{Field: f.field, Reason: err.Message}}
	err.Message = f.field + ": " + err.Message
	return err
}

// writeInputs writes all contents to .staging first and then renames them, so that a full disk
// changes nothing in inputs/.
func (p *Project) writeInputs(root *os.Root, files []staged) error {
	if err := p.stage(root); err != nil {
		return err
	}
	defer func() {
		for _, f := range files {
			if f.temp != "" {
				_ = root.Remove(f.temp)
			}
		}
	}()
	for i := range files {
		f := &files[i]
		if f.shared {
			continue
		}
		name := stagingDir + "/" + p.w.TempName()
		out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		f.temp = name
		_, err = out.Write(f.Content)
		if err := errors.Join(err, tree.UndoFileUmask(out, f.Executable), out.Close()); err != nil {
			return err
		}
	}
	made := map[string]bool{inputsDir: true}
	for i := range files {
		f := &files[i]
		if f.shared {
			continue
		}
		if err := makeParents(root, inputsDir+"/"+f.Path, made); err != nil {
			return err
		}
		if err := root.Rename(f.temp, inputsDir+"/"+f.Path); err != nil {
			return err
		}
		f.temp = ""
	}
	return nil
}

// makeParents makes the missing directories above a file; made has those that exist.
func makeParents(root *os.Root, file string, made map[string]bool) error {
	for _, dir := range tree.Parents(file) {
		if made[dir] {
			continue
		}
		made[dir] = true
		if err := tree.MakeDir(root, dir); err != nil {
			return err
		}
	}
	return nil
}

// stage makes .staging and sweeps it once.
func (p *Project) stage(root *os.Root) error {
	if err := root.Mkdir(stagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := tree.RealDir(root, stagingDir); err != nil {
		return err
	}
	if p.state.swept {
		return nil
	}
	p.state.swept = true
	staging, _, err := tree.OpenDir(root, stagingDir)
	if err != nil {
		return err
	}
	defer staging.Close()
	tree.RemoveOlder(staging, p.w.opts.Now().Add(-staleStaging))
	return nil
}
