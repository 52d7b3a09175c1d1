package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bytes returns a size in units of 1024 with at most one decimal: "1.5 MiB".
func Bytes(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len("KMGTPE") {
		size, unit = size/1024, unit+1
	}
	text := strings.TrimSuffix(strconv.FormatFloat(size, 'f', 1, 64), ".0")
	return text + " " + "KMGTPE"[unit-1:unit] + "iB"
}

// Duration returns a duration in milliseconds as people read it: "850 ms", "12.4 s", "3 min 07 s",
// "2 h 05 min".
func Duration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Count returns a number with commas between thousands: "1,234,567".
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// seconds is how times are shown; the script replaces them by local times of the same form.
const seconds = "2006-01-02 15:04:05"

// shown is a time in UTC, which an exact one says.
func shown(t time.Time, exactly bool) string {
	if exactly {
		return t.UTC().Format(seconds) + " UTC"
	}
	return t.UTC().Format(seconds)
}

// iso is the datetime of a time element.
func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000") }

// Strings returns values as strings, such as the choices of a Select.
func Strings[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
