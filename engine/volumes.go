package engine

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// plainPath is an absolute path that a value of --mount can have.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._@+-]+)+$`)

// maxVolumes is how many VOLUMEs an image may have.
const maxVolumes = 64

// volumesOf returns the paths of an image's VOLUMEs as Image.Volumes has them; fault.ImageUnfit for
// a path that runArgs cannot close.
func volumesOf(ref string, volumes map[string]struct{}) (string, error) {
	paths := slices.Sorted(maps.Keys(volumes))
	for i, at := range paths {
		at = strings.TrimSuffix(at, "/")
		if paths[i] = at; !plainPath.MatchString(at) || path.Clean(at) != at || len(paths) > maxVolumes ||
			slices.ContainsFunc([]string{"/workspace", initDir, "/proc", "/sys", "/dev"}, func(ours string) bool {
				return inside(at, ours) || inside(ours, at)
			}) {
			return "", fault.New(fault.ImageUnfit, "the image %q has the volume %q, which jobs could fill without a limit, and for which the sandbox "+
				"has no place; remove that VOLUME from its Dockerfile", ref, whole.Shorten(at))
		}
	}
	return strings.Join(slices.Compact(paths), ","), nil
}

// inside reports whether a path is a directory or below it.
func inside(at, dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }

// closedVolumes are docker's arguments that put an empty, read-only directory at each VOLUME of the
// image where the container has no mount. The engine would make a volume there, without a limit.
func closedVolumes(volumes string, mounts []Mount, points *mountPoints) (args []string) {
	taken := []string{"/tmp", "/dev/shm"}
	for _, m := range mounts {
		taken = append(taken, m.Target)
	}
	if points != nil {
		taken = append(taken, points.targets...)
	}
	for at := range strings.SplitSeq(volumes, ",") {
		if at != "" && !slices.Contains(taken, at) {
			args = append(args, "--mount", "type=tmpfs,target="+at+",readonly,tmpfs-size=4k")
		}
	}
	return args
}
