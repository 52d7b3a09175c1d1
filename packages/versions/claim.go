package versions

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"

	"secbox/workspace/tree"
)

// Claim announces to all nodes that the caller is about to use this spelling of a name that folds
// to fold, until release is called. rival reports that another caller is about to use another
// spelling. The claim is made before the others' are read, so at least one of two concurrent
// callers sees the other, and perhaps both do. After a crash, the claim is swept when it is an hour
// old.
func (a *Agent) Claim(fold, spelling string) (rival bool, release func(), err error) {
	root, err := a.open()
	if err != nil {
		return false, nil, err
	}
	defer root.Close()
	if err := root.Mkdir(stagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, nil, tree.Failed(err, "the staging directory of agent %s cannot be used", a.id)
	}
	staging, _, err := tree.OpenDir(root, stagingDir)
	if err != nil {
		return false, nil, tree.Failed(err, "the staging directory of agent %s cannot be used", a.id)
	}
	all := "claim-" + hashed(fold) + "-"
	mine := all + hashed(spelling) + "-"
	name := mine + a.store.workspace.TempName()
	if err := staging.Mkdir(name, 0o700); err != nil {
		staging.Close()
		return false, nil, tree.Failed(err, "the staging directory of agent %s cannot be used", a.id)
	}
	release = func() {
		_ = staging.Remove(name)
		staging.Close()
	}
	err = tree.EachName(staging, func(other string) error {
		rival = rival || strings.HasPrefix(other, all) && !strings.HasPrefix(other, mine)
		return nil
	})
	if err != nil {
		release()
		return false, nil, tree.Failed(err, "the claims on agent %s cannot be read", a.id)
	}
	return rival, release, nil
}

// hashed returns a name of fixed length for any name.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}
