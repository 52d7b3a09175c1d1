//go:build unix

package engine_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
)

// standbyScript is a docker whose containers say hello and report exit code 7 when they get a job.
// The first container of a name gets 15 bytes before its job. It answers if there is a file
// "answers", and takes no job if there is a file "frozen".
const standbyScript = `cd %s
shift_to() { while [ "$1" != --name ]; do shift; done; name=$2; }
hello() { printf 'h\000\000\000\015secbox-init/2'; }
serve() { head -c $1 > /dev/null; printf 'x\000\000\000\012{"code":7}'; exec cat > /dev/null; }
case $1 in
run)
	shift_to "$@"
	[ ! -e "$name" ] || { hello; serve 1; }
	echo $$ > "$name"
	hello
	[ ! -e answers ] || printf 'r\000\000\000\000'
	[ ! -e frozen ] || exec cat 3>&1 > "$name.sent"
	serve 16 ;;
rm) kill "$(cat "$4")" && echo "$4" >> removed ;;
esac`

// TestFrozenContainerIsReplaced takes a container that has answered once and is frozen since. A new
// one of the same name gets the job.
func TestFrozenContainerIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files   []string
		removed bool
	}{
		"frozen":                        {[]string{"answers", "frozen"}, true},
		"of an init that never answers": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, file := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pool := newPool(t, engine.Config{
				Driver:        engine.NewDocker(dockerclitest.Script(t, fmt.Sprintf(standbyScript, dir)), engine.Options{}),
				AnswerTimeout: time.Millisecond, NewID: uuid.NewString, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			}, func(c *engine.PoolConfig) { c.MaxPerKey = 1 })
			defer pool.Close()
			spec := engine.Spec{ProjectID: "demo", ImageID: "sha256:x", User: "1000:1000", Prepare: nowhere}
			pool.Use(spec)
			eventually(t, "a container that waits", func() bool { return pool.Stats().Waiting == 1 && (pool.Answered() || !c.removed) })
			slot, err := pool.Acquire(t.Context(), spec)
			if err != nil || !slot.Warm() {
				t.Fatalf("%v", err)
			}
			exit, err := slot.Run(t.Context(), enginetest.Shell("exit 7"), io.Discard, io.Discard)
			if err != nil || exit.Code != 7 {
				t.Fatalf("%+v %v", exit, err)
			}
			removed, _ := os.ReadFile(filepath.Join(dir, "removed"))
			container := "secbox-" + slot.ExecID()
			if got := strings.Contains(string(removed), container); got != c.removed {
				t.Errorf("removed: %v", got)
			}
			if sent, err := os.ReadFile(filepath.Join(dir, container+".sent")); c.removed && (err != nil || strings.Trim(string(sent), "R\x00") != "") {
				t.Errorf("the container that did not answer was sent %q, %v", sent, err)
			}
		})
	}
}

func nowhere(context.Context, string) (engine.MountSet, error) { return engine.MountSet{}, nil }
