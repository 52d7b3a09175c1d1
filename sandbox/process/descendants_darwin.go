package process

import "golang.org/x/sys/unix"

// killDescendants kills the processes that descend from pid through living ancestors.
func killDescendants(pid int) {
	killed := map[int32]bool{}
	for {
		all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
		if err != nil {
			return
		}
		family := map[int32]bool{int32(pid): true}
		for grown := true; grown; {
			grown = false
			for _, p := range all {
				if family[p.Eproc.Ppid] && !family[p.Proc.P_pid] {
					family[p.Proc.P_pid], grown = true, true
				}
			}
		}
		more := false
		for one := range family {
			if one != int32(pid) && !killed[one] {
				killed[one], more = true, true
				_ = unix.Kill(int(one), unix.SIGKILL)
			}
		}
		if !more { // no new descendants
			return
		}
	}
}
