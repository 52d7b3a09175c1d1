package engine_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
)

// poolScript is a docker whose containers answer when they are asked for it, print "ran" when they
// get a job, and end with their lease. Each is a file with the pid of its process.
const poolScript = `cd %s
case $1 in
run)
	for arg; do case $arg in secbox-*) name=$arg ;; esac; done
	echo $$ > "$name"
	printf 'h\000\000\000\015secbox-init/2'
	asked=
	while :; do
		case $(head -c 5 | tr '\000' .) in
		R*) [ -z "$asked" ] || printf 'r\000\000\000\000'; asked=1 ;;
		J*) break ;;
		*) rm -f "$name"; exit 0 ;;
		esac
	done
	printf 'o\000\000\000\004ran\nx\000\000\000\012{"code":0}'
	cat > /dev/null
	rm -f "$name" ;;
rm) kill "$(cat "$4")"; rm -f "$4" ;;
ps) ls | grep '^secbox-' || : ;;
esac`

// newScriptedPool is newPooled on the docker of poolScript, for tests of the pool's decisions.
func newScriptedPool(t *testing.T, change func(*engine.PoolConfig)) *pooled {
	t.Helper()
	dir := t.TempDir()
	cli := dockerclitest.Script(t, fmt.Sprintf(poolScript, dir))
	p := &pooled{t: t, Fixture: &enginetest.Fixture{CLI: cli, Image: engine.Image{Ref: "image", ID: "sha256:a"}}}
	p.pool = newPool(t, engine.Config{
		Driver: engine.NewDocker(cli, engine.Options{}), NewID: uuid.NewString, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, change)
	t.Cleanup(func() {
		if err := p.pool.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("containers left behind: %v %v", left, err)
		}
	})
	return p
}
