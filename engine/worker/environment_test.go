//go:build linux

package worker

import (
	"slices"
	"testing"
)

func TestJobVariablesReplaceImages(t *testing.T) {
	t.Parallel()
	got := environment([]string{"PATH=/bin", "HOME=/tmp", "EMPTY="}, []string{"HOME=/x", "NEW=a=b"}, "/more")
	if want := []string{"PATH=/bin:/more", "EMPTY=", "HOME=/x", "NEW=a=b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
