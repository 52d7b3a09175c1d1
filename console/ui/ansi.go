package ui

import (
	"strconv"
	"strings"
)

// style is how the following text is shown.
type style struct {
	bold, dim, italic, under, strike, reverse bool
	fg, bg                                    int // 1 to 16; 0: the default
}

func (s style) classes() string {
	var c []string
	add := func(set bool, class string) {
		if set {
			c = append(c, class)
		}
	}
	add(s.bold, "t-bold")
	add(s.dim, "t-dim")
	add(s.italic, "t-italic")
	add(s.under, "t-under")
	add(s.strike, "t-strike")
	fg, bg := s.fg, s.bg
	if s.reverse {
		fg, bg = bg, max(fg, 1)
	}
	add(fg > 0, "t-f"+strconv.Itoa(fg-1))
	add(bg > 0, "t-bg"+strconv.Itoa(bg-1))
	return strings.Join(c, " ")
}

// maxSGR is the longest sequence that is interpreted, in bytes.
const maxSGR = 64

// sgr parses a sequence "ESC [ numbers m" at the beginning of text, of n bytes.
func sgr(text []byte) (n int, params []int, ok bool) {
	if len(text) < 3 || text[0] != 0x1b || text[1] != '[' {
		return 0, nil, false
	}
	number := 0
	for i := 2; i < min(len(text), maxSGR); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			number = min(number*10+int(c-'0'), 1000)
		case c == ';' || c == ':':
			params, number = append(params, number), 0
		case c == 'm':
			return i + 1, append(params, number), true
		default:
			return 0, nil, false
		}
	}
	return 0, nil, false
}

func (s style) apply(params []int) style {
	for i := 0; i < len(params); i++ {
		switch p := params[i]; {
		case p == 0:
			s = style{}
		case p == 1:
			s.bold = true
		case p == 2:
			s.dim = true
		case p == 3:
			s.italic = true
		case p == 4:
			s.under = true
		case p == 7:
			s.reverse = true
		case p == 9:
			s.strike = true
		case p == 22:
			s.bold, s.dim = false, false
		case p == 23:
			s.italic = false
		case p == 24:
			s.under = false
		case p == 27:
			s.reverse = false
		case p == 29:
			s.strike = false
		case p >= 30 && p <= 37:
			s.fg = p - 30 + 1
		case p == 39:
			s.fg = 0
		case p >= 40 && p <= 47:
			s.bg = p - 40 + 1
		case p == 49:
			s.bg = 0
		case p >= 90 && p <= 97:
			s.fg = p - 90 + 9
		case p >= 100 && p <= 107:
			s.bg = p - 100 + 9
		case p == 38 || p == 48:
			colour, used := extended(params[i+1:])
			if p == 38 {
				s.fg = colour
			} else {
				s.bg = colour
			}
			i += used
		}
	}
	return s
}

// extended returns the colour of the 16 that is nearest to one of 256 (5;n) or to a mixture
// (2;r;g;b), and how many numbers it has.
func extended(params []int) (colour, used int) {
	switch {
	case len(params) >= 2 && params[0] == 5:
		switch n := params[1]; {
		case n < 16:
			return n + 1, 2
		case n < 232: // a cube of six steps for each of red, green and blue
			n -= 16
			return nearest(n/36*51, n/6%6*51, n%6*51), 2
		default:
			grey := (n - 232) * 10
			return nearest(grey, grey, grey), 2
		}
	case len(params) >= 4 && params[0] == 2:
		return nearest(params[1], params[2], params[3]), 4
	}
	return 0, len(params)
}

// nearest returns the colour of the first eight that is nearest to a mixture of parts from 0 to
// 255.
func nearest(red, green, blue int) int {
	half := max(red, green, blue) / 2
	bit := func(part, value int) int {
		if part > half && part > 40 {
			return value
		}
		return 0
	}
	return 1 + bit(red, 1) + bit(green, 2) + bit(blue, 4)
}
