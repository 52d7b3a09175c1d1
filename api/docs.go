package api

func docsPage(c *contract) (page, error) { return newPage("text/html; charset=utf-8", []byte("x"), basicCSP), nil }
