package api_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
)

// TestLinesOfALargeFile: lines of a file can be read and replaced even if the file is too large for
// an answer.
func TestLinesOfALargeFile(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("u/ag", "", "x.zip", weather(t)))
	data[string](t, f.do(request{method: "PUT", path: "/v1/skills/u/ag/weather_skill/edit?path=main.py", body: "1\n"})) // makes the copy
	work := filepath.Join(f.root, "projects", "ag~u", "work")
	const line = "0123456789abcde"
	const count = library.MaxFileBytes/(len(line)+1) + 1
	large := strings.Repeat(line+"\n", count)
	for name, base := range map[string]string{"skills/weather_skill/large": "/v1/skills/u/ag/weather_skill", "large": "/v1/sandbox/u/ag"} {
		file := filepath.Join(work, name)
		if err := os.WriteFile(file, []byte(large), 0o644); err != nil {
			t.Fatal(err)
		}
		lines := func(query string) []string {
			return data[map[string][]string](t, f.get(base+"/content?path=large"+query))["content"]
		}
		f.get(base+"/content?path=large").refused(t, fault.FileTooLarge)
		f.get(base+"/content?path=large&start=1").refused(t, fault.FileTooLarge)
		data[string](t, f.do(request{method: "PUT", path: base + "/edit?path=large&start=500000&end=500001", body: "middle\n"}))
		if got := lines("&start=499999&end=500001"); !slices.Equal(got, []string{line, "middle", line}) {
			t.Errorf("%s: the middle is %q", name, got)
		}
		f.do(request{method: "PUT", path: base + "/edit?path=large&start=900000&end=900000", body: "x"}).refused(t, fault.InvalidRequest, "start")
		if fi, err := os.Stat(file); err != nil || fi.Size() != int64(len(large)-2*(len(line)+1)+len("middle\n")) {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
		if err := os.Truncate(file, library.MaxLinesBytes+1); err != nil { // with a hole, which takes no room
			t.Fatal(err)
		}
		f.get(base+"/content?path=large&start=1&end=2").refused(t, fault.FileTooLarge)
		f.do(request{method: "PUT", path: base + "/edit?path=large&start=1&end=1", body: "x"}).refused(t, fault.FileTooLarge)
	}
}
