package dockercli

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"secbox/fault"
)

// Kind is the meaning of the docker CLI's error message.
type Kind int

// The kinds that callers handle.
const (
	Other        Kind = iota
	Unreachable       // no engine behind the CLI
	NoImage           // the engine does not hold the image
	NoContainer       // no such container, which is success for a removal
	NameTaken         // a container of this name exists
	Removing          // a removal of this container is in progress already
	NotStartable      // the container was created, its first process could not be started
	BadMount          // a bind mount's source does not exist, or the engine does not see its mounts
	NoResources       // the engine's machine has no room or no memory
	NoFile            // a container has no such file
	ImageInUse        // containers use the image
	NoRuntime         // the engine knows no OCI runtime of that name
	TooOld            // the engine does not know the version of its API that was asked for, or the CLI an option
)

// words are parts of the engine's messages, in lower case; the first match counts. Each has a test
// with a message of a real engine.
var words = []struct {
	text string
	kind Kind
}{
	{": unavailable", Unreachable}, // the end of dockerd's message while its containerd is away
	{"the client connection is closing", Unreachable},
	{"cannot connect to the docker daemon", Unreachable},
	{"failed to connect to the docker api", Unreachable},
	{"error during connect", Unreachable},
	{"docker daemon is not running", Unreachable},
	{"permission denied while trying to connect", Unreachable},
	{"got permission denied while trying to connect", Unreachable},
	{"the docker client must be run with elevated privileges", Unreachable},
	{"error waiting for container: unexpected eof", Unreachable},
	{"error waiting for container: eof", Unreachable},
	{"unexpected eof", Unreachable},
	{"no such image", NoImage},
	{"unable to find image", NoImage},
	{"no such container", NoContainer},
	{"is already in use by container", NameTaken},
	{"is already in progress", Removing},
	{"could not find the file", NoFile},
	{"conflict: unable to remove repository reference", ImageInUse}, // by a container of this name
	{"conflict: unable to delete", ImageInUse},
	{"bind source path does not exist", BadMount},
	{"it is not a shared or slave mount", BadMount},
	{"no space left on device", NoResources},
	{"is too new. maximum supported api version", TooOld},
	{"unexpected key 'volume-subpath'", TooOld},
	{"unknown runtime specified", NoRuntime},       // until 20.10
	{"unknown or invalid runtime name", NoRuntime}, // from 23.0
	{"oci runtime create failed", NotStartable},
	{"failed to create task", NotStartable},
	{"executable file not found", NotStartable},
}

// Classify returns the Kind of the CLI's standard error.
func Classify(stderr string) Kind {
	lower := strings.ToLower(stderr)
	for _, w := range words {
		if strings.Contains(lower, w.text) {
			return w.kind
		}
	}
	return Other
}

// Error is a failed docker command.
type Error struct {
	Command  string // the sub-command, without arguments
	ExitCode int
	Kind     Kind
	Stderr   string
}

func (e *Error) Error() string {
	return fmt.Sprintf("docker %s: exit %d: %s", e.Command, e.ExitCode, strings.TrimSpace(e.Stderr))
}

// IsTooOld reports whether a command failed because the engine or the CLI is too old for it.
func IsTooOld(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == TooOld
}

// interpret makes the error of a failed command.
func interpret(command, stderr string, err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return fault.Wrap(fault.EngineUnavailable, err, "the docker CLI could not be run; check sandbox.docker_path")
	}
	e := &Error{Command: command, ExitCode: exit.ExitCode(), Kind: Classify(stderr), Stderr: stderr}
	switch e.Kind {
	case Unreachable:
		return fault.Wrap(fault.EngineUnavailable, e,
			"the Docker engine does not answer; start it, and check that this user may use it (`docker info`)")
	case NoImage:
		return fault.Wrap(fault.ImageMissing, e,
			"the engine does not hold the image; build it with `make setup` or pull it on the engine's host")
	case NoResources:
		return fault.Wrap(fault.DiskFull, e, "the engine's disk is full; free some space on its host")
	case TooOld:
		return fault.Wrap(fault.EngineUnavailable, e,
			"the Docker engine or its command is too old for a workspace in a volume (sandbox.workspace_volume), which needs Docker 26; "+
				"update Docker, or set sandbox.workspace_root_host (in docker-compose.yml: SECBOX_WORKSPACE) to a directory of its machine")
	case NoRuntime:
		return fault.Wrap(fault.InvalidSettings, e,
			"the engine has no OCI runtime of the name in sandbox.runtime; add it to the engine's daemon.json, or choose one that "+
				"`docker info` lists")
	default:
		return fault.Wrap(fault.Internal, e, "docker %s failed; the server's log has its message", command)
	}
}
