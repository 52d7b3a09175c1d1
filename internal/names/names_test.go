package names

import (
	"slices"
	"strings"
	"testing"
)

func TestShownPathsAreFound(t *testing.T) {
	t.Parallel()
	files := []string{
		"caf\xe9.txt", "d\xff", "d\xff/100%E9", "d\xff/\xe9\xff é", "100%E9", "both\xe9", "both%E9", "%e9", "\xc3\xa9", "%C3%A9x", "5%\xff",
		"%41\xff",
	}
	exists := func(path string) bool { return slices.Contains(files, path) }
	for _, file := range files {
		want := file
		if file == "both\xe9" { // the other one has the very name
			want = "both%E9"
		}
		if got := Meant(Shown(file), exists); got != want {
			t.Errorf("%q is shown as %q, which means %q", file, Shown(file), got)
		}
	}
	for _, other := range []string{"new%E9", "%", "%E", "a%E9/b", "caf%e9.txt", "", "%41"} {
		if got := Meant(other, exists); got != other {
			t.Errorf("%q means %q", other, got)
		}
	}
}

func FuzzMeant(f *testing.F) {
	f.Add("caf\xe9/%E9")
	f.Add("%FF%")
	f.Fuzz(func(t *testing.T, name string) {
		if got := Meant(Shown(name), func(path string) bool { return strings.HasPrefix(name+"/", path+"/") }); got != name {
			t.Errorf("%q is shown as %q, which means %q", name, Shown(name), got)
		}
	})
}
