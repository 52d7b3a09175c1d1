package runner

// use keeps the project's work/ where it is, for as long as the exec has anything to do with it.
func (x *exec) use() error {
	release, err := x.project.UseInExec()
	if err == nil {
		x.released = release
	}
	return err
}

// leave ends that, and the watch, if they have begun.
func (x *exec) leave() {
	x.unwatch()
	if x.released != nil {
		x.released()
	}
}
