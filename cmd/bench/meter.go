//go:build linux

package main

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// meter is the CPU time of a core-api and of PostgreSQL's processes for its database, to the nanosecond. It does not depend on how busy the machine is.
type meter struct {
	server   int    // pid
	database string // name; empty: none
	backends []int  // pids, as of the last look
}

func meterOf(server int, databaseURL string) (*meter, error) {
	m := &meter{server: server}
	if databaseURL != "" {
		u, err := url.Parse(databaseURL)
		if err != nil {
			return nil, errors.New("not a URL of PostgreSQL")
		}
		m.database = strings.TrimPrefix(u.Path, "/")
	}
	return m, m.look()
}

// look finds the processes of the database: each has a title such as "postgres: user name [local] idle".
func (m *meter) look() error {
	m.backends = nil
	if m.database == "" {
		return nil
	}
	all, err := processes()
	for _, p := range all {
		if title := strings.Fields(strings.Join(p.args, " ")); len(title) > 2 && title[0] == "postgres:" && title[2] == m.database {
			m.backends = append(m.backends, p.pid)
		}
	}
	return err
}

// read returns the CPU time so far. If a process of the database has ended it looks again, and the next difference is too small.
func (m *meter) read() (time.Duration, error) {
	sum, err := cpuClock(m.server)
	if err != nil {
		return 0, err
	}
	for _, pid := range m.backends {
		spent, err := cpuClock(pid)
		if err != nil {
			return sum, m.look()
		}
		sum += spent
	}
	return sum, nil
}

// cpuClock reads the CPU-time clock of a process; see clock_getcpuclockid(3).
func cpuClock(pid int) (time.Duration, error) {
	const ofAllThreads = 2
	var at unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|ofAllThreads), &at)
	return time.Duration(at.Nano()), err
}
