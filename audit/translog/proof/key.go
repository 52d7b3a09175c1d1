package proof

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// maxKey bounds a key file in bytes.
const maxKey = 4 << 10

// ReadKey returns a public key that is given as such, or as the name of a file with it. A key has
// the form name+hash+base64, and so contains a +. It fails with fault.InvalidRequest if there is
// neither.
func ReadKey(keyOrFile string) (string, error) {
	file, err := os.Open(keyOrFile)
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(keyOrFile, "+") {
		return strings.TrimSpace(keyOrFile), nil
	}
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, err, "cannot open the key file %s: %s; give the public key itself, or a file with it",
			whole.Shorten(keyOrFile), fault.Reason(err))
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKey))
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, err, "cannot read the key file %s: %s", whole.Shorten(keyOrFile), fault.Reason(err))
	}
	return strings.TrimSpace(string(text)), nil
}
