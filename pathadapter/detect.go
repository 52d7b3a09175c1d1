package pathadapter

import "strings"

// Facts describe the system of this process; the caller reads them.
type Facts struct {
	GOOS        string              // runtime.GOOS
	ProcVersion string              // the content of /proc/version, "" where there is none
	DockerEnv   bool                // /.dockerenv or /run/.containerenv exists
	Getenv      func(string) string // os.Getenv; nil: no environment
}

// Detect reads from the facts whether the process runs under WSL and whether it runs in a
// container. Both can be true: a container on Docker Desktop shares WSL's kernel.
func Detect(f Facts) (isWSL, inContainer bool) {
	if f.GOOS != "linux" {
		return false, false
	}
	getenv := f.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	isWSL = getenv("WSL_DISTRO_NAME") != "" || getenv("WSL_INTEROP") != "" ||
		strings.Contains(strings.ToLower(f.ProcVersion), "microsoft")
	inContainer = f.DockerEnv || getenv("container") != "" || getenv("KUBERNETES_SERVICE_HOST") != ""
	return isWSL, inContainer
}
