package webhooks

import (
	"net/netip"
	"strings"
	"testing"

	"secbox/fault"
)

func TestURLsOfCallbacks(t *testing.T) {
	t.Parallel()
	p := Policy{Allow: []string{"a.example", "*.b.example", "c.example:8443", "*.d.example:9", "10.0.0.5", "[2606::1]:8443"}}
	for url, want := range map[string]string{
		"https://a.example":              "a.example:443",
		"https://A.Example/x?y=z":        "a.example:443",
		"https://a.example:443/":         "a.example:443",
		"https://x.b.example":            "x.b.example:443",
		"https://y.x.b.example/":         "y.x.b.example:443",
		"https://c.example:8443/":        "c.example:8443",
		"https://x.d.example:9/":         "x.d.example:9",
		"https://10.0.0.5/":              "10.0.0.5:443",
		"https://[2606::1]:8443/":        "[2606::1]:8443",
		"https://[2606:0:0::0001]:08443": "[2606::1]:8443",
		"https://A.EXAMPLE:0443/":        "a.example:443",
		"https://[::ffff:a00:5]/":        "10.0.0.5:443",
		"https://%C3%BC.b.example/":      "",
		"https://xn--tda.b.example/":     "xn--tda.b.example:443",
		"https://x.b.example./":          "",
		"":                               "",
		"a.example":                      "",
		"/x":                             "",
		"https:a.example":                "",
		"https://":                       "",
		"https://:443/":                  "",
		"ftp://a.example":                "",
		"http://a.example":               "",
		"https://a.example:8443/":        "",
		"https://a.example:0443x/":       "",
		"https://c.example/":             "",
		"https://b.example/":             "",
		"https://xb.example/":            "",
		"https://a.example.evil/":        "",
		"https://a.example@evil/":        "",
		"https://u:p@a.example/":         "",
		"https://u@a.example/":           "",
		"https://a.example/#x":           "",
		"https://a.example/ü":            "",
		"https://a.example/ x":           "",
		"https://a.example\\.b.example/": "",
		"https://a.example./":            "",
		"https://0xa000005/":             "",
		"https://a.example/" + strings.Repeat("x", MaxURL): "",
	} {
		host, err := p.Check(url)
		if host != want || (err == nil) != (want != "") || err != nil && !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%.80q: %q, %v", url, host, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error has the password: %v", err)
		}
	}
	if _, err := (Policy{Allow: p.Allow, AllowHTTP: true}).Check("http://a.example"); err != nil {
		t.Error(err)
	}
	if _, err := (Policy{AllowHTTP: true}).Check("http://a.example"); err == nil || !strings.Contains(err.Error(), "webhooks.allow ") {
		t.Errorf("off: %v", err)
	}
}

// TestOnlyPublicAddressesAreDialled has each kind of address that leads to this machine, its
// networks, or elsewhere than to a host of the internet.
func TestOnlyPublicAddressesAreDialled(t *testing.T) {
	t.Parallel()
	open := Policy{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("127.0.0.1/32")}}
	for addr, public := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "172.15.255.255": true, "172.32.0.1": true, "192.167.1.1": true, "100.63.0.1": true, "100.128.0.1": true,
		"223.255.255.255": true,
		"2606:4700::1111": true, "2a00:1450::1": true,
		"0.0.0.0": false, "0.1.2.3": false, "127.0.0.1": false, "127.255.255.254": false, "10.0.0.1": false, "10.1.0.1": false, "172.16.0.1": false,
		"172.31.255.255": false, "192.168.1.1": false,
		"169.254.169.254": false, "100.64.0.1": false, "100.127.255.255": false, "192.0.0.8": false, "192.0.2.1": false, "198.18.0.1": false,
		"198.51.100.7": false, "203.0.113.7": false,
		"224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "192.88.99.1": false,
		"::": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:10.1.0.1": false, "::ffff:1.1.1.1": false, "::7f00:1": false, "64:ff9b::a00:1": false,
		"64:ff9b:1::1": false, "100::1": false,
		"fc00::1": false, "fd00::1": false, "fd00:1::1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false, "2001::1": false,
		"2001:db8::1": false, "2002:a00:1::1": false,
		"3fff::1": false, "4000::1": false, "5f00::1": false,
	} {
		if err := (Policy{}).dials(netip.MustParseAddr(addr)); (err == nil) != public {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for addr, allowed := range map[string]bool{
		"10.1.2.3": true, "10.2.0.1": false, "fd00:1::7": true, "fd00:2::7": false, "127.0.0.1": true,
		"127.0.0.2": false, "::ffff:10.1.2.3": false,
	} {
		if err := open.dials(netip.MustParseAddr(addr)); (err == nil) != allowed {
			t.Errorf("with networks, %s: %v", addr, err)
		}
	}
	for _, address := range []string{"", "x", "localhost:80", "10.0.0.1:80", "[::1]:80", "[fe80::1%1]:80"} {
		if (Policy{}).control("tcp", address, nil) == nil {
			t.Errorf("%q is dialled", address)
		}
	}
	if (Policy{}).dials(netip.Addr{}) == nil {
		t.Error("no address is dialled")
	}
}
