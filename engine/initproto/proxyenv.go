package initproto

import "strings"

// CAEnv returns the variables from which programs learn of a file with certificate authorities. Own
// is a file with those alone that Node.js adds to its own.
func CAEnv(bundle, own string) []string {
	var env []string
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"} {
		env = append(env, name+"="+bundle)
	}
	return append(env, "NODE_EXTRA_CA_CERTS="+own)
}

// WithDefaults adds variables to an environment that does not have them.
func WithDefaults(env, defaults []string) []string {
	set := map[string]bool{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		set[name] = true
	}
	var added []string
	for _, kv := range defaults {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			added = append(added, kv)
		}
	}
	return append(added, env...)
}

// ProxyEnv returns the variables from which programs learn of a proxy at an address. There is no
// common one for SOCKS: clients that find a SOCKS proxy in ALL_PROXY and lack a module for it fail.
func ProxyEnv(address string) []string {
	url := "http://" + address
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		env = append(env, name+"="+url)
	}
	const direct = "localhost,127.0.0.1,::1"
	return append(env, "NO_PROXY="+direct, "no_proxy="+direct, "NODE_USE_ENV_PROXY=1")
}
