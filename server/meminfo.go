package server

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// Free memory that warm containers must leave: a 32nd of the machine's, at least 256 MiB.
const (
	leastFreeKiB  = 256 << 10
	leastFreePart = 32
)

// shortOfMemory reports whether the machine has little free memory. Without /proc it returns false.
func shortOfMemory() bool {
	total, available := memory()
	return total > 0 && available >= 0 && available < max(leastFreeKiB, total/leastFreePart)
}

// memory returns the machine's memory, and what of it programs can have, in KiB; -1: not known.
func memory() (total, available int64) {
	total, available = -1, -1
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return total, available
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && (total < 0 || available < 0); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "MemTotal":
			total = kibibytes(value)
		case "MemAvailable":
			available = kibibytes(value)
		}
	}
	return total, available
}

// kibibytes parses "  24576 kB". It returns -1 for anything else.
func kibibytes(value string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
