package report

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/admin"
	"secbox/audit/translog/checkpoint"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

// Result is what a bundle proves.
type Result struct {
	Origin    string // of the log
	Tree      tlog.Tree
	By        admin.Actor
	CreatedAt time.Time
	First     int64 // entry
	Entries   int64
	Extras    int64

	// Whether an entry before the span and one after it, or the first and the last of the log, show
	// that the log has nothing else of the span.
	Begins, Ends bool
	Last         time.Time // when the last of Entries was logged; zero if it has lost its event

	Report   Report            // in the newest form, whichever the file has
	Unproven Unproven          // the word of core-api
	Names    map[string]string // of tokens and people, by id, as events of the file say
	proof.Cosignatures
}

// CheckBundle verifies a bundle with the log's public key, as proof.Check does the proof of an
// exec: its signature, each entry, that no entry is left out between the first and the last, and
// the report, which it makes anew. It holds a bounded part of the file. It fails with
// fault.InvalidProof, and with fault.InvalidRequest for a key that is none.
func CheckBundle(file io.Reader, key string, witnesses ...string) (Result, error) {
	verifier, err := proof.NewVerifier(key)
	if err != nil {
		return Result{}, err
	}
	c := &checker{in: bufio.NewReaderSize(file, 64<<10), verifier: verifier, digest: sha256.New()}
	if err := c.run(); err != nil {
		if known := (*fault.Error)(nil); errors.As(err, &known) {
			return Result{}, err
		}
		return Result{}, fault.Wrap(fault.InvalidProof, err, "line %d of the report: %v", c.lines, err)
	}
	c.result.Cosignatures, err = proof.CheckCosignatures([]byte(c.header.Checkpoint), verifier, witnesses)
	return c.result, err
}

// checker reads a bundle.
type checker struct {
	in       *bufio.Reader
	verifier note.Verifier
	digest   hash.Hash // SHA-256 of all lines but the one that was read last
	lines    int64
	bytes    int64 // as in digest
	last     []byte
	header   Header
	built    *Builder
	result   Result
}

func (c *checker) run() error {
	if err := c.readHeader(); err != nil {
		return err
	}
	entries, err := c.readEntries()
	if err != nil {
		return err
	}
	if err := c.readExtras(); err != nil {
		return err
	}
	if err := c.readEnd(entries); err != nil {
		return err
	}
	return c.readSignature()
}

// next reads a line, without its end.
func (c *checker) next() ([]byte, error) {
	c.digest.Write(c.last) // never fails
	c.bytes += int64(len(c.last))
	c.last = c.last[:0]
	c.lines++
	for {
		part, err := c.in.ReadSlice('\n')
		c.last = append(c.last, part...)
		switch {
		case len(c.last) > maxLine || c.bytes > MaxBytes:
			return nil, fmt.Errorf("it is longer than %d bytes, or the file than %d", maxLine, MaxBytes)
		case err == nil:
			return c.last[:len(c.last)-1], nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the file ends here: it was cut off")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fault.Wrap(fault.InvalidRequest, err, "cannot read the report: %s", fault.Reason(err))
		}
	}
}

// decode reads a line strictly.
func decode(line []byte, v any) error {
	if err := jsonv2.Unmarshal(line, v, jsonv2.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("the file was changed, or is no report: %w", err)
	}
	return nil
}

func (c *checker) readHeader() error {
	line, err := c.next()
	if err != nil {
		return err
	}
	h := &c.header
	if err := decode(line, h); err != nil {
		return err
	}
	switch {
	case h.Format != Format && h.Format != formatV1:
		return fmt.Errorf("its format is %q, and this program reads %q and %q; get a newer secbox if the file is from a newer core-api", h.Format,
			Format, formatV1)
	case h.Entries < 0 || h.Entries > MaxEntries || h.First < 0 || h.First > checkpoint.MaxSize:
		return fmt.Errorf("it cannot have %d entries from %d on", h.Entries, h.First)
	case !h.Until.After(h.Since):
		return errors.New("its span is empty")
	}
	point, err := checkpoint.Open([]byte(h.Checkpoint), c.verifier)
	if err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	if h.Origin != point.Origin || h.First+h.Entries > point.Tree.N {
		return fmt.Errorf("the log %s with %d entries does not have these", point.Origin, point.Tree.N)
	}
	c.built = NewBuilder(h.Span)
	c.result = Result{
		Origin: point.Origin, Tree: point.Tree, By: h.By, CreatedAt: h.CreatedAt, First: h.First, Entries: h.Entries,
		Begins: h.First == 0, Ends: h.First+h.Entries == point.Tree.N,
	}
	return nil
}

var factory = &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// readEntries adds the entries to the report, and returns the hashes of their part of the tree.
func (c *checker) readEntries() (*compact.Range, error) {
	entries := factory.NewEmptyRange(uint64(c.header.First))
	for i := range c.header.Entries {
		line, err := c.next()
		if err != nil {
			return nil, err
		}
		var e Entry
		if err := decode(line, &e); err != nil {
			return nil, err
		}
		leaf, err := e.leaf(c.header.Format)
		if err == nil {
			err = entries.Append(leaf[:], nil)
		}
		if err == nil {
			err = c.add(e, i)
		}
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// add adds an entry to the report, and notes whether it shows the begin or the end of the span.
func (c *checker) add(e Entry, i int64) error {
	if e.Event == "" {
		c.built.Without(c.header.First + i)
		return c.bounded()
	}
	if i == 0 || i == c.header.Entries-1 {
		var logged struct {
			At time.Time `json:"logged_at"`
		}
		if err := jsonv2.Unmarshal([]byte(e.Event), &logged, jsontext.AllowDuplicateNames(true)); err != nil {
			return err
		}
		c.result.Begins = c.result.Begins || i == 0 && !logged.At.After(c.header.Since)
		if i == c.header.Entries-1 {
			c.result.Ends, c.result.Last = c.result.Ends || !logged.At.Before(c.header.Until), logged.At
		}
	}
	return c.event(e.Event)
}

func (c *checker) event(canonical string) error {
	if err := c.built.Add(canonical); err != nil {
		return err
	}
	return c.bounded()
}

func (c *checker) bounded() error {
	if c.built.Size() > maxHeld {
		return fmt.Errorf("the report is too large for this program")
	}
	return nil
}

var beginExtra = []byte(`{"index":`)

func (c *checker) readExtras() error {
	for before := int64(-1); ; {
		line, err := c.next()
		if err != nil || !bytes.HasPrefix(line, beginExtra) {
			return err
		}
		var x Extra
		if err := decode(line, &x); err != nil {
			return err
		}
		if c.result.Extras++; c.result.Extras > MaxExtras || x.Index <= before || x.Index >= c.result.Tree.N ||
			x.Index >= c.header.First && x.Index < c.header.First+c.header.Entries {
			return fmt.Errorf("entry %d is not to be here", x.Index)
		}
		before = x.Index
		leaf, err := leafOf(x.Event, x.Salt)
		if err != nil {
			return err
		}
		path := make(tlog.RecordProof, len(x.Path))
		for i, hash := range x.Path {
			if len(hash) != tlog.HashSize {
				return errors.New("its path has a hash of another length")
			}
			path[i] = tlog.Hash(hash)
		}
		if err := tlog.CheckRecord(path, c.result.Tree.N, c.result.Tree.Hash, x.Index, leaf); err != nil {
			return fmt.Errorf("the log does not have this event at index %d: %w", x.Index, err)
		}
		if err := c.event(x.Event); err != nil {
			return err
		}
	}
}

// readEnd compares the report with the entries' report, and the root of the tree with the
// checkpoint's. readExtras has read the line.
func (c *checker) readEnd(entries *compact.Range) error {
	var end struct {
		Report   jsontext.Value `json:"report"`
		Unproven Unproven       `json:"unproven"`
		Left     [][]byte       `json:"left"`
		Right    [][]byte       `json:"right"`
	}
	if err := jsonv2.Unmarshal(c.last, &end, jsonv2.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	root, err := c.rootOf(entries, end.Left, end.Right)
	if err != nil {
		return fmt.Errorf("the hashes of the tree: %w", err)
	}
	if root != c.result.Tree.Hash {
		return c.otherEntries(root)
	}
	c.result.Report, c.result.Unproven, c.result.Names = c.built.Report(), end.Unproven, c.built.names
	want, err := encode(c.built.report(c.header.Format))
	if err != nil {
		return err
	}
	if !bytes.Equal(want, end.Report) {
		return errors.New("its report is not what the entries say")
	}
	return nil
}

// otherEntries returns the error for a root that the log does not have. It names no line: none is
// known to be wrong.
func (c *checker) otherEntries(root tlog.Hash) error {
	which := "each event has the hash beside it, so lines were moved, or hashes were changed, too"
	if c.header.Format == formatV1 {
		which = fmt.Sprintf("a file of the format %q does not show which line", formatV1)
	}
	return fault.New(fault.InvalidProof, "the file was changed: the log has other entries from %d on; the root of these is %s, the checkpoint's is %s; %s",
		c.header.First, root, c.result.Tree.Hash, which)
}

func (c *checker) rootOf(entries *compact.Range, left, right [][]byte) (tlog.Hash, error) {
	for _, hash := range append(left[:len(left):len(left)], right...) {
		if len(hash) != tlog.HashSize {
			return tlog.Hash{}, errors.New("one has another length")
		}
	}
	tree, err := factory.NewRange(0, uint64(c.header.First), left)
	if err != nil {
		return tlog.Hash{}, err
	}
	after, err := factory.NewRange(entries.End(), uint64(c.result.Tree.N), right)
	if err == nil {
		err = tree.AppendRange(entries, nil)
	}
	if err == nil {
		err = tree.AppendRange(after, nil)
	}
	if err != nil {
		return tlog.Hash{}, err
	}
	root, err := tree.GetRootHash(nil)
	if err != nil || len(root) != tlog.HashSize {
		return tlog.Hash{}, errors.Join(err, errors.New("they have no root"))
	}
	return tlog.Hash(root), nil
}

// readSignature verifies that the log's key has signed all before.
func (c *checker) readSignature() error {
	line, err := c.next()
	if err != nil {
		return err
	}
	body, err := proof.OpenEnvelope(line, payloadType, c.verifier)
	if err != nil {
		return fmt.Errorf("the file is not signed by the key %s: %w", c.verifier.Name(), err)
	}
	var s seal
	if err := decode(body, &s); err != nil {
		return err
	}
	if s.Format != c.header.Format || s.Bytes != c.bytes || !bytes.Equal(s.SHA256, c.digest.Sum(nil)) {
		return errors.New("the file was changed: the signature is of other bytes")
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the signature")
	}
	return nil
}
