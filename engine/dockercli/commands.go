package dockercli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"time"

	"secbox/fault"
)

// Containers lists the names of all containers, running or not, with the label ("key=value"). It
// omits containers without a name: an engine that was killed while it removed a container lists it
// as dead until the next restart, but there is nothing left to remove.
func (c *CLI) Containers(ctx context.Context, label string) ([]string, error) {
	out, err := c.Output(ctx, "ps", "-a", "--filter", "label="+label, "--format", "{{.Names}}")
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}

// Remove kills and removes a container by name or id. It succeeds when the container does not
// exist. A removal that is in progress already is an error: the caller must try again.
func (c *CLI) Remove(ctx context.Context, container string) error {
	_, err := c.Output(ctx, "rm", "-f", "-v", container)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Kind == NoContainer {
		return nil
	}
	return err
}

// Update changes limits of a running container. It takes the flags of `docker run`.
func (c *CLI) Update(ctx context.Context, container string, flags ...string) error {
	_, err := c.Output(ctx, slices.Concat([]string{"update"}, flags, []string{container})...)
	return err
}

// Image is the part of an image's inspection that is needed.
type Image struct {
	ID     string // sha256:…
	Labels map[string]string
	// Volumes are the paths of its VOLUMEs.
	Volumes map[string]struct{}
}

// InspectImage inspects an image of the engine; fault.ImageMissing when it does not exist.
func (c *CLI) InspectImage(ctx context.Context, ref string) (Image, error) {
	return query[Image](ctx, c, "image", "inspect", "--format",
		`{"ID":{{json .Id}},"Labels":{{json .Config.Labels}},"Volumes":{{json .Config.Volumes}}}`, ref)
}

// ImageTagged returns when the engine last tagged an image.
func (c *CLI) ImageTagged(ctx context.Context, ref string) (time.Time, error) {
	return query[time.Time](ctx, c, "image", "inspect", "--format", "{{json .Metadata.LastTagTime}}", ref)
}

// Info describes the engine and its machine.
type Info struct {
	ServerVersion   string
	CgroupVersion   string // "1" or "2"
	OperatingSystem string
	OSType          string
	Architecture    string
	NCPU            int
	MemTotal        int64 // bytes
	DefaultRuntime  string
	Runtimes        map[string]json.RawMessage
	SecurityOptions []string
	DockerRootDir   string
	ServerErrors    []string
	Plugins         struct {
		Log []string // the log drivers
	}
	ClientInfo struct {
		Version string
		Context string
	}
}

// Option returns the key=value pairs of a security option such as "name=seccomp,profile=default";
// nil when the engine lacks it.
func (i Info) Option(name string) map[string]string {
	for _, o := range i.SecurityOptions {
		pairs := map[string]string{}
		for pair := range strings.SplitSeq(o, ",") {
			key, value, _ := strings.Cut(pair, "=")
			pairs[key] = value
		}
		if pairs["name"] == name {
			return pairs
		}
	}
	return nil
}

// HasOption reports whether the engine has a security option. It also accepts the bare name, the
// form of old engines.
func (i Info) HasOption(name string) bool {
	return i.Option(name) != nil || slices.Contains(i.SecurityOptions, name)
}

// IsPodman reports whether podman's service answers in the engine's place. It does not say so
// itself, but only it has this log driver.
func (i Info) IsPodman() bool { return slices.Contains(i.Plugins.Log, "k8s-file") }

// Err is the error of an engine that does not answer: older CLIs exit 0 then, and newer ones 1.
func (i Info) Err() error {
	said := strings.Join(i.ServerErrors, "; ")
	switch {
	case said == "":
		return nil
	case Classify(said) == TooOld:
		return interpret("info", said, &exec.ExitError{})
	default:
		return fault.Wrap(fault.EngineUnavailable, errors.New(said),
			"the Docker engine does not answer; start it, and check that this user may use it (`docker info`)")
	}
}

// Info returns the engine's Info.
func (c *CLI) Info(ctx context.Context) (Info, error) {
	info, err := query[Info](ctx, c, "info", "--format", "{{json .}}")
	if err != nil {
		return Info{}, err
	}
	if err := info.Err(); err != nil {
		return Info{}, err
	}
	return info, nil
}

// subpathAPI is the first version of the engine's API, of Docker 26, that mounts a directory of a
// volume. With an older one, the whole volume is mounted instead, without an error.
const subpathAPI = "1.45"

// RequireSubpath makes all further commands fail with an engine that cannot mount a directory of a
// volume; the Kind of their error is TooOld.
func (c *CLI) RequireSubpath() { c.env = append(c.env, "DOCKER_API_VERSION="+subpathAPI) }

// Pin makes all further commands go to the engine that the environment and the CLI's current
// context name now.
func (c *CLI) Pin(ctx context.Context) error {
	host, err := c.Output(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	if err == nil {
		c.env = append(c.env, "DOCKER_HOST="+strings.TrimSpace(string(host)))
	}
	return err
}

// Volumes lists the volumes whose names contain text and that have a label, given as name or
// name=value; with unused, only those without a container.
func (c *CLI) Volumes(ctx context.Context, text, label string, unused bool) ([]string, error) {
	args := []string{"volume", "ls", "-q", "--filter", "name=" + text, "--filter", "label=" + label}
	if unused {
		args = append(args, "--filter", "dangling=true")
	}
	out, err := c.Output(ctx, args...)
	return strings.Fields(string(out)), err
}

// RemoveVolume removes a volume; the engine refuses that while a container uses it.
func (c *CLI) RemoveVolume(ctx context.Context, name string) error {
	_, err := c.Output(ctx, "volume", "rm", name)
	return err
}

// query runs docker and decodes the JSON that it prints.
func query[T any](ctx context.Context, c *CLI, args ...string) (T, error) {
	var v, none T
	out, err := c.Output(ctx, args...)
	if err != nil {
		return none, err
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&v); err != nil {
		return none, fault.Wrap(fault.Internal, err, "the docker CLI answered something unexpected")
	}
	return v, nil
}

// FillVolume makes a named volume with a label, unless it exists, and fills it with the image's
// files in dir, unless it has files, by creating a container that never starts.
func (c *CLI) FillVolume(ctx context.Context, name, label, dir, imageID string) error {
	out, err := c.Output(ctx, "create", "--pull=never", "--network=none", "--label", "secbox.volume="+name,
		"--mount", "type=volume,source="+name+",target="+dir+",volume-label="+label, imageID, "true")
	if err != nil {
		return err
	}
	// Without -v: the volume stays.
	_, err = c.Output(ctx, "rm", strings.TrimSpace(string(out)))
	return err
}
