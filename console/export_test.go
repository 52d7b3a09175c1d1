package console

// Renderings are the functions that make HTML of a file, by extension.
func Renderings() map[string]func([]byte) (string, error) {
	all := map[string]func([]byte) (string, error){}
	for ext, format := range textFormats {
		all[ext] = format.html
	}
	return all
}
