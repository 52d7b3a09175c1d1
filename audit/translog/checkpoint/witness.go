package checkpoint

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/transparency-dev/formats/witness"
	"golang.org/x/mod/sumdb/note"

	"secbox/fault"
)

// Witness is a witness that is asked for cosignatures (C2SP tlog-witness).
type Witness struct {
	Key    note.Verifier // its name names the witness
	Public string        // the text of Key
	URL    *url.URL      // the prefix of its routes
}

// ParseWitness reads a witness in the form "KEY URL".
func ParseWitness(text string) (Witness, error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return Witness{}, fault.New(fault.InvalidSettings,
			"a witness is its public key and its address, such as: example.com/w1+12345678+… http://10.0.0.5:8010")
	}
	u, err := url.Parse(fields[1])
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return Witness{}, fault.New(fault.InvalidSettings,
			"a witness has an address without user, query or fragment, such as http://10.0.0.5:8010")
	}
	key, err := CosignerKey(fields[0])
	if err != nil {
		return Witness{}, err
	}
	return Witness{Key: key, Public: fields[0], URL: u}, nil
}

// CosignerKey reads the public key of a witness.
func CosignerKey(text string) (note.Verifier, error) {
	text = strings.TrimSpace(text)
	w, err := witness.New(text, &url.URL{})
	if err == nil && !strings.HasPrefix(text, fmt.Sprintf("%s+%08x+", w.Key.Name(), w.Key.KeyHash())) {
		err = fmt.Errorf("its hash does not match")
	}
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "the public key of a witness is damaged, or none: a key for cosignatures has "+
			"the form name+hash+base64; `secbox audit witness` prints its own at its start")
	}
	return w.Key, nil
}
