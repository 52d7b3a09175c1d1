//go:build linux

package worker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/engine/initproto"
)

// TestProgramsLearnTheirProcessors: what the job or its image sets stays, and holds for libraries
// that follow it.
func TestProgramsLearnTheirProcessors(t *testing.T) {
	t.Parallel()
	const counted = " GOMAXPROCS JULIA_NUM_THREADS NUMBA_NUM_THREADS POLARS_MAX_THREADS PYTHON_CPU_COUNT RAYON_NUM_THREADS"
	for set, want := range map[string]string{
		"PATH=/bin":         "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS BLIS_NUM_THREADS NUMEXPR_NUM_THREADS" + counted,
		"OMP_NUM_THREADS=8": strings.TrimSpace(counted),
		"MKL_NUM_THREADS=8": "OMP_NUM_THREADS OPENBLAS_NUM_THREADS BLIS_NUM_THREADS NUMEXPR_NUM_THREADS" + counted,
		"GOMAXPROCS=": "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS BLIS_NUM_THREADS NUMEXPR_NUM_THREADS" + strings.Replace(counted,
			" GOMAXPROCS", "", 1),
		"GOMAXPROCS_LIKE=one": "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS BLIS_NUM_THREADS NUMEXPR_NUM_THREADS" + counted,
	} {
		if got := strings.Join(withCPUs([]string{set}, 3), " "); got != set+" "+strings.ReplaceAll(want, " ", "=3 ")+"=3" {
			t.Errorf("beside %s: %s", set, got)
		}
	}
	if got := withCPUs([]string{"A=1"}, 0); len(got) != 1 {
		t.Errorf("without a limit: %q", got)
	}
}

// TestCodeRunsAsAFile: its directory is the first place of modules, as with -c, and the job's
// PYTHONPATH comes after it.
func TestCodeRunsAsAFile(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{"": "/work", "PYTHONPATH=": "/work", "PYTHONPATH=/a:/b": "/work:/a:/b"} {
		file := filepath.Join(t.TempDir(), "code.py")
		spec := initproto.Job{Argv: []string{"python", "-c", "print(1)\n", "one", "two"}, Cwd: "/work", CodeFile: file}
		argv, env, err := codeInFile(spec, []string{"A=1", set})
		if err != nil || !slices.Equal(argv, []string{"python", file, "one", "two"}) || env[len(env)-1] != "PYTHONPATH="+want ||
			slices.Contains(env[:len(env)-1], set) && set != "" {
			t.Errorf("%q: %q %q %v", set, argv, env, err)
		}
		if content, err := os.ReadFile(file); err != nil || string(content) != "print(1)\n" {
			t.Errorf("%q %v", content, err)
		}
		if _, _, err := codeInFile(spec, nil); !errors.Is(err, os.ErrExist) {
			t.Errorf("a file that is there: %v", err)
		}
	}
}

// TestEncodingLines: only comments that Python takes for encoding lines lose their effect.
func TestEncodingLines(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"":                                "",
		"# -*- coding: gbk -*-\nprint(1)": "# -*- coding  gbk -*-\nprint(1)",
		"#!/usr/bin/python\r\n \t\f# vim: set fileencoding=cp1252 :\r\n1": "#!/usr/bin/python\r\n \t\f# vim: set fileencoding cp1252 :\r\n1",
		"\n#coding=ascii":                      "\n#coding ascii",
		"#\r# coding:\tbig5\r":                 "#\r# coding \tbig5\r",
		"# coding: coding= gbk coding coding=": "# coding  coding  gbk coding coding ",
		"# coding: gbk\n# coding: ascii\n1":    "# coding  gbk\n# coding  ascii\n1",
		"\ufeff# coding: gbk":                  "\ufeff# coding  gbk",
		"# coding: utf8\n# coding: UTF-8":      "# coding: utf8\n# coding: UTF-8",
		"# coding : gbk\n# encoding gbk":       "# coding : gbk\n# encoding gbk",
		"x = '''\n# coding: gbk\n'''":          "x = '''\n# coding: gbk\n'''",
		"x = 1 # coding: gbk":                  "x = 1 # coding: gbk",
		"\n\n# coding: gbk":                    "\n\n# coding: gbk",
	} {
		if got := withoutEncoding(code); got != want {
			t.Errorf("%q became %q, want %q", code, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "code.py")
	if _, _, err := codeInFile(initproto.Job{Argv: []string{"python", "-c", "# coding: gbk\n"}, CodeFile: file}, nil); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "# coding  gbk\n" {
		t.Errorf("%q %v", content, err)
	}
}

func TestJobVariablesReplaceImages(t *testing.T) {
	t.Parallel()
	got := environment([]string{"PATH=/bin", "HOME=/tmp", "EMPTY="}, []string{"HOME=/x", "NEW=a=b"}, "/more")
	if want := []string{"PATH=/bin:/more", "EMPTY=", "HOME=/x", "NEW=a=b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
