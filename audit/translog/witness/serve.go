package witness

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/checkpoint"
)

const (
	maxProof   = 63                                    // lines, by C2SP tlog-witness
	maxRequest = checkpoint.MaxBytes + 64*(1+maxProof) // bytes of add-checkpoint

	// Bounds of the checkpoints that requests add to the directory: core-api sends one a second.
	keptPerSecond = 2
	keptAtOnce    = 20
)

// Handler serves add-checkpoint and the latest checkpoint by C2SP tlog-witness.
func (w *Witness) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", w.addCheckpoint)
	mux.HandleFunc(fmt.Sprintf("GET /%x/checkpoint", sha256.Sum256([]byte(w.key.Name()))), func(rw http.ResponseWriter, _ *http.Request) {
		latest := w.Latest()
		if latest.Signed == "" {
			http.Error(rw, "no checkpoint yet", http.StatusNotFound)
			return
		}
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(rw, latest.Signed)
	})
	return mux
}

func (w *Witness) addCheckpoint(rw http.ResponseWriter, r *http.Request) {
	refuse := func(status int, why string) { http.Error(rw, why, status) }
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxRequest))
	if err != nil {
		refuse(http.StatusBadRequest, "the body is too long, or broke off")
		return
	}
	old, proof, signed, err := parseRequest(body)
	if err != nil {
		refuse(http.StatusBadRequest, err.Error())
		return
	}
	next, err := checkpoint.Open(signed, w.key)
	switch {
	case errors.Is(err, checkpoint.ErrOrigin):
		refuse(http.StatusNotFound, "this witness follows another log")
		return
	case errors.Is(err, checkpoint.ErrFormat):
		refuse(http.StatusBadRequest, err.Error())
		return
	case err != nil:
		refuse(http.StatusForbidden, err.Error())
		return
	case old > next.Tree.N:
		refuse(http.StatusBadRequest, "the old size is larger than the checkpoint")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := w.latest
	switch {
	case w.found != nil:
		refuse(http.StatusInternalServerError, "the witness has found that this log is not what it was, and cosigns nothing")
		return
	case old != latest.Tree.N:
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintf(rw, "%d\n", latest.Tree.N)
		return
	}
	if err := consistent(latest.Tree, next.Tree, proof); err != nil {
		select {
		case w.doubted <- signed: // Follow looks into it: the proof may be wrong, or the log
		default:
		}
		refuse(http.StatusUnprocessableEntity, err.Error())
		return
	}
	var line string
	switch {
	case next.Tree == latest.Tree && latest.Signed != "":
		_, line, err = next.Cosign(w.cosigner)
	case !w.requests.AllowN(w.cfg.Now(), 1):
		rw.Header().Set("Retry-After", "1")
		refuse(http.StatusTooManyRequests, "too many checkpoints; send at most one a second")
		return
	default:
		line, err = w.keep(next)
	}
	if err != nil {
		w.cfg.Logger.Error("cannot cosign a checkpoint", "err", err)
		refuse(http.StatusInternalServerError, "the witness cannot keep the checkpoint")
		return
	}
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(rw, line)
}

// consistent checks a consistency proof.
func consistent(before, next tlog.Tree, proof tlog.TreeProof) error {
	switch {
	case next.N == 0 && next.Hash != tlog.Hash(sha256.Sum256(nil)):
		return errors.New("an empty log has another root")
	case next.N == before.N && before.N > 0 && next.Hash != before.Hash:
		return errors.New("the log has another root than before at the same size")
	case before.N == 0 || before.N == next.N:
		if len(proof) > 0 {
			return errors.New("no proof is needed for this size")
		}
		return nil
	}
	if err := tlog.CheckTree(proof, next.N, next.Hash, before.N, before.Hash); err != nil {
		return errors.New("the consistency proof does not verify")
	}
	return nil
}

// parseRequest reads the body of add-checkpoint.
func parseRequest(body []byte) (old int64, proof tlog.TreeProof, signed []byte, err error) {
	head, signed, found := bytes.Cut(body, []byte("\n\n"))
	if !found {
		return 0, nil, nil, errors.New("the request has no empty line before the checkpoint")
	}
	lines := bufio.NewScanner(bytes.NewReader(head))
	lines.Scan()
	size, found := strings.CutPrefix(lines.Text(), "old ")
	if old, err = strconv.ParseInt(size, 10, 64); err != nil || !found || old < 0 || strconv.FormatInt(old, 10) != size {
		return 0, nil, nil, errors.New("the first line is not the old size")
	}
	for lines.Scan() {
		hash, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil || len(hash) != tlog.HashSize || len(proof) == maxProof {
			return 0, nil, nil, errors.New("the consistency proof is not at most 63 hashes in base64")
		}
		proof = append(proof, tlog.Hash(hash))
	}
	return old, proof, signed, lines.Err()
}
