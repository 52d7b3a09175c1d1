// Package suggest finds the word that a user may have meant.
package suggest

// Nearest returns the candidate that takes the fewest edits to reach; the first of equals.
// Candidates are not empty.
func Nearest(word string, candidates []string) string {
	best, least := candidates[0], -1
	for _, c := range candidates {
		if d := distance(word, c); least < 0 || d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is Levenshtein's: how many bytes must be put in, taken out or replaced. Words are cut at
// 200 bytes.
func distance(a, b string) int {
	a, b = a[:min(len(a), 200)], b[:min(len(b), 200)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// Close is Nearest if at most a third of the word has to be edited, and two bytes of a short one;
// else empty.
func Close(word string, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	near := Nearest(word, candidates)
	if distance(word, near) > max(2, min(len(word), 200)/3) {
		return ""
	}
	return near
}
