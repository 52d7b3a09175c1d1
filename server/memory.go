package server

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// The memory that containers without a job must leave to others: a 32nd of the machine's, and on small ones this much, in KiB.
const (
	leastFreeKiB  = 256 << 10
	leastFreePart = 32
)

// shortOfMemory reports whether the machine has little memory left. Where that cannot be read (there is no /proc) it has enough.
func shortOfMemory() bool {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return false
	}
	defer f.Close()
	total, available := int64(-1), int64(-1)
	for lines := bufio.NewScanner(f); lines.Scan() && (total < 0 || available < 0); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "MemTotal":
			total = kibibytes(value)
		case "MemAvailable":
			available = kibibytes(value)
		}
	}
	return total > 0 && available >= 0 && available < max(leastFreeKiB, total/leastFreePart)
}

// kibibytes reads "  24576 kB"; -1 when it is something else.
func kibibytes(value string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
