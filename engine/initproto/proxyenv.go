package initproto

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
