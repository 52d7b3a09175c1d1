package proof

import (
	"testing"
)

func TestSameButForSpace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":[1,"b c"]}`, "{ \"a\" :\t[1 , \"b c\"] }\n", true},
		{`"\" \\"`, ` "\" \\" `, true},
		{`["\\", "x"]`, `["\\","x"]`, true},
		{``, ` `, true},
		{`"a b"`, `"ab"`, false},
		{`"a\" b"`, `"a\"b"`, false},
		{`[1 2]`, `[12]`, false},
		{`[12]`, `[1 2]`, false},
		{`12`, `1`, false},
		{`"a`, `"a`, false},
		{`"a\`, `"a\`, false},
	} {
		if got := sameButForSpace([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%q, %q: %t", c.a, c.b, got)
		}
	}
}

func TestColumnIsTexts(t *testing.T) {
	t.Parallel()
	for column1, texts := range map[string][]string{
		`[]`: {}, `["a", "b & \u0026 \" c"]`: {"a", `b & & " c`},
	} {
		value := &texts
		if !column(column1).equals(value) || column(column1).equals(new(append(texts, "x"))) || len(texts) > 0 && column(column1).equals(new(texts[1:])) {
			t.Error(column1)
		}
	}
	for _, bad := range []string{``, `null`, `{}`, `["a"`, `["a" "b"]`, `[1]`} {
		if column(bad).equals(&[]string{"a"}) {
			t.Error(bad)
		}
	}
}
