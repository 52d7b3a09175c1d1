package lines

// MaxBytes is maxBytes.
const MaxBytes = maxBytes
