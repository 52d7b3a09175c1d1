//go:build linux

package inside

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const clockTick = 10 * time.Millisecond // of the times in /proc, on all of Linux

// processes lists the processes of the container but this one.
func processes(limit int) (all []Process, more bool, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false, err
	}
	var ids []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil && id != os.Getpid() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	booted := bootTime()
	for _, id := range ids {
		if len(all) == limit {
			return all, true, nil
		}
		if p, ok := describeProcess(id, booted); ok { // else it has ended
			all = append(all, p)
		}
	}
	return all, false, nil
}

func bootTime() time.Time {
	text, _ := os.ReadFile("/proc/stat")
	_, after, _ := strings.Cut(string(text), "\nbtime ")
	line, _, _ := strings.Cut(after, "\n")
	seconds, _ := strconv.ParseInt(line, 10, 64)
	return time.Unix(seconds, 0).UTC()
}

// The fields of /proc/PID/stat after the name, which proc(5) numbers from 3.
const (
	stateField   = 0
	parentField  = 1
	userField    = 11
	systemField  = 12
	startedField = 19
	pagesField   = 21
)

func describeProcess(id int, booted time.Time) (p Process, ok bool) {
	dir := "/proc/" + strconv.Itoa(id)
	stat, err := os.ReadFile(dir + "/stat")
	end := bytes.LastIndexByte(stat, ')') // of the name, which may have any bytes
	if err != nil || end < 0 {
		return p, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= pagesField {
		return p, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return n
	}
	command, _ := os.ReadFile(dir + "/cmdline")
	command = bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '})
	if len(command) == 0 { // it has ended, or removed its arguments
		command = stat[bytes.IndexByte(stat, '(')+1 : end]
	}
	return Process{
		PID: id, Parent: int(number(parentField)), Command: command[:min(len(command), MaxCommand)], State: fields[stateField],
		CPUUS:       (time.Duration(number(userField)+number(systemField)) * clockTick).Microseconds(),
		MemoryBytes: number(pagesField) * int64(os.Getpagesize()),
		StartedAt:   booted.Add(time.Duration(number(startedField)) * clockTick),
	}, true
}
