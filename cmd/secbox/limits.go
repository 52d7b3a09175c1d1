package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	client "secbox/clients/go"
)

// limits are the flags for what the policy gives a command.
type limits struct {
	memory, tmp, shm, output size
	timeout                  time.Duration
	cpus                     float64
	pids                     int64
	image                    string
}

func (l *limits) addFlags(flags *pflag.FlagSet) {
	flags.Var(&l.memory, "memory", "memory, such as 512m or 2g")
	flags.DurationVar(&l.timeout, "timeout", 0, "time that the command may take, such as 30s or 5m")
	flags.Float64Var(&l.cpus, "cpus", 0, "processors, such as 0.5")
	flags.Int64Var(&l.pids, "pids", 0, "processes")
	flags.Var(&l.tmp, "tmp", "size of /tmp, such as 64m")
	flags.Var(&l.shm, "shm", "size of /dev/shm, such as 64m")
	flags.Var(&l.output, "max-output", "bytes of standard output that are kept, such as 100m")
	flags.StringVar(&l.image, "image", "", "an image that the policy allows")
}

// policy returns what the request asks for; nil for nothing.
func (l *limits) policy() *client.Policy {
	p := client.Policy{
		TimeoutMS: l.timeout.Milliseconds(), MemoryMB: l.memory.mib(), CPUCores: l.cpus, PIDs: l.pids, TmpMB: l.tmp.mib(),
		ShmMB: l.shm.mib(), MaxStdoutBytes: int64(l.output),
	}
	if p.TimeoutMS == 0 && l.timeout > 0 {
		p.TimeoutMS = 1
	}
	if p.TimeoutMS == 0 && p.MemoryMB == 0 && p.CPUCores == 0 && p.PIDs == 0 && p.TmpMB == 0 && p.ShmMB == 0 && p.MaxStdoutBytes == 0 {
		return nil
	}
	return &p
}

// size is a number of bytes as a flag.
type size int64

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits := strings.TrimRight(strings.ToLower(text), "ib")
	shift := 0
	if n := len(digits); n > 0 {
		if shift = map[byte]int{'k': 10, 'm': 20, 'g': 30}[digits[n-1]]; shift > 0 {
			digits = digits[:n-1]
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/float64(int64(1)<<shift) {
		return fmt.Errorf("%q is no size; write one like 512m or 2g", text)
	}
	*s = size(n * float64(int64(1)<<shift))
	return nil
}

// String implements pflag.Value.
func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return bytesText(int64(*s))
}

// Type implements pflag.Value.
func (*size) Type() string { return "size" }

// mib returns the size in MiB, at least one.
func (s size) mib() int64 { return (int64(s) + 1<<20 - 1) >> 20 }

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	for shift, unit := range map[int]string{30: "GiB", 20: "MiB", 10: "KiB"} {
		if n >= 1<<shift && n < 1<<(shift+10) {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(int64(1)<<shift), 'f', 1, 64), ".0") + " " + unit
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}
