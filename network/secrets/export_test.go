package secrets

// Output returns what a command prints.
var Output = output
