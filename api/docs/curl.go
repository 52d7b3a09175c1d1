package docs

import (
	"net"
	"slices"
	"strings"

	"secbox/api/contract"
)

// anyType declares a body whose Content-Type does not matter.
const anyType = "*/*"

// curl returns a command for a POSIX shell.
func curl(op contract.Operation, base string, token bool) string {
	path := op.Path
	var query, lines []string
	for _, p := range op.Parameters() {
		name, example := p.Get("name").Text(), p.Get("example").Text()
		switch p.Get("in").Text() {
		case "path":
			if name == "session_id" {
				example = "$SESSION_ID"
			}
			if name == "exec_id" {
				example = "$EXEC_ID"
			}
			path = strings.ReplaceAll(path, "{"+name+"}", example)
		case "query":
			if slices.Contains(op.Needs, name) {
				query = append(query, name+"="+example)
			}
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	if op.Method != "GET" {
		lines = append(lines, "-X "+op.Method)
	}
	if token {
		lines = append(lines, `-H "Authorization: Bearer $TOKEN"`)
	}
	if body := op.Spec.Get("requestBody", "content", "application/json", "example"); body.Exists() {
		lines = append(lines, "-H 'Content-Type: application/json'", "-d '"+strings.ReplaceAll(body.JSON(), "'", `'\''`)+"'")
	}
	if op.Takes("multipart/form-data") {
		lines = append(lines, "-F file=@weather_skill.zip")
	}
	if body := op.Spec.Get("requestBody", "content", anyType, "example"); body.Exists() {
		lines = append(lines, "-H 'Content-Type: text/plain'", "--data-binary '"+body.Text()+"'")
	}
	flags := "-sS"
	if good := op.Spec.Get("responses", "200"); good.Get("headers", "Content-Disposition").Exists() && !good.Get("content",
		"application/json").Exists() {
		flags += "OJ" // a file
	}
	return strings.Join(append([]string{"curl " + flags + ` "` + base + path + `"`}, lines...), " \\\n  ")
}

// baseURL returns the server's own address on loopback, else the default address.
func baseURL(listenAddr string) string {
	host, port, err := net.SplitHostPort(listenAddr)
	if err != nil || port == "0" || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return "http://127.0.0.1:8003"
	}
	return "http://" + listenAddr
}
