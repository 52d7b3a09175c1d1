// Command desktop stands for Docker Desktop in the tests of reach.sh: desktop ADDRESS SOCKET DRIVE.
// It passes an engine's API on, and turns the sources of bind mounts, which are Windows paths, into
// directories of a Wine prefix's drive C.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: desktop ADDRESS SOCKET DRIVE")
		os.Exit(2)
	}
	d := desktop{drive: os.Args[3]}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "docker"})
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", os.Args[2])
		}},
		FlushInterval:  -1,
		ModifyResponse: named,
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/containers/create") {
			if err := replaceBody(&r.Body, &r.ContentLength, r.Header, d.mounts); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		proxy.ServeHTTP(w, r)
	})))
	os.Exit(1)
}

// named makes the engine call itself Docker Desktop.
func named(resp *http.Response) error {
	if !strings.HasSuffix(resp.Request.URL.Path, "/info") {
		return nil
	}
	return replaceBody(&resp.Body, &resp.ContentLength, resp.Header,
		func(info map[string]any) { info["OperatingSystem"] = "Docker Desktop" })
}

// replaceBody changes a body that is a JSON object.
func replaceBody(body *io.ReadCloser, length *int64, h http.Header, change func(map[string]any)) error {
	content, err := io.ReadAll(*body)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber() // memory in bytes is no float
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return err
	}
	change(object)
	if content, err = json.Marshal(object); err != nil {
		return err
	}
	*body, *length = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	h.Set("Content-Length", strconv.Itoa(len(content)))
	return nil
}

type desktop struct{ drive string }

// mounts replaces the sources in a container's configuration.
func (d desktop) mounts(config map[string]any) {
	host, _ := config["HostConfig"].(map[string]any)
	binds, _ := host["Binds"].([]any)
	for i, b := range binds {
		if text, ok := b.(string); ok {
			binds[i] = d.bind(text)
		}
	}
	mounts, _ := host["Mounts"].([]any)
	for _, m := range mounts {
		if m, ok := m.(map[string]any); ok && m["Type"] == "bind" {
			source, _ := m["Source"].(string)
			m["Source"] = d.source(source)
		}
	}
}

// spelled are the ways to write a path on drive C: C:\a\b, C:/a/b, /c/a/b,
// /run/desktop/mnt/host/c/a/b, and WSL's /mnt/c/a/b.
var spelled = regexp.MustCompile(`^(?i:c:[\\/]|/c/|/run/desktop/mnt/host/c/|/mnt/c/|/host_mnt/c/)`)

func (d desktop) source(path string) string {
	prefix := spelled.FindString(path)
	if prefix == "" {
		return path
	}
	return d.drive + "/" + strings.ReplaceAll(path[len(prefix):], `\`, "/")
}

// bind replaces the source of SOURCE:TARGET[:OPTIONS]. A drive's colon is none of the separators.
func (d desktop) bind(text string) string {
	at := strings.Index(text, ":/")
	if at <= 1 { // after the drive's letter
		next := strings.Index(text[at+1:], ":/")
		if next < 0 {
			return text
		}
		at += 1 + next
	}
	return d.source(text[:at]) + text[at:]
}
