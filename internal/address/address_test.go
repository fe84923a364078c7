package address

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests cover how Open reads its addresses.

// Any text given as an address yields either the client that was meant, or an error. No text causes a panic, and no
// error shows the password. The password is the text before the last @ and after the user's name.
func FuzzAddress(f *testing.F) {
	for _, form := range []string{
		"redis://user:%s@host:6379", "rediss://:%s@host", "redis://%s@host:6379/3", "user:%s@host:6379", "%s@host:6379", "unix://user:%s@/path?db=1", "user:%s://x@host:1", "x:%s@a@b",
		"redis://user:%s@host:6379?pool_size=-1", "redis://user:%s@host:6379?pool_size=99999999999&max_idle_conns=99999999999", "redis://user:%s@host:6379/x", "redis://user:%s@host:6379?no=1", "redis://user:%s@[::1", "redis://user:%s@host:port",
		"http://user:%s@host", "redis://user:%s@host:6379?max_active_conns=-99999999999&pipeline_pool_size=99999999999", "redis://user:%s@host:6379?dial_timeout=-1&read_timeout=-5s&db=-1&protocol=9", "://user:%s@host", " redis://user:%s@host", "redis://user:%s@host:6379?min_idle_conns=x", "redis:user:%s@host",
	} {
		before, after, _ := strings.Cut(form, "%s")
		for _, secret := range []string{"SECRET-7", "SECRET%zz", "SECRET@7", "SECRET://7", "SECRET/7?#", "SECRET 7", "SECRET\x00\n"} {
			f.Add(before, secret, after)
		}
	}
	for _, address := range []string{"host:6379", "[::1]:6379", ":6379", "host:", "host", "", "redis://", "redis://?pool_size=-1", "a:b:c", "redis://host:6379/0?db=9999999999999999999"} {
		f.Add(address, "", "")
	}
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		address := before + secret + after
		opt, err := Options(address)
		if err != nil {
			require.Nil(t, opt)
			if len(secret) >= 6 && strings.Contains(before, ":") && strings.Contains(after, "@") && !strings.Contains(before+after, secret) {
				quoted := fmt.Sprintf("%q", secret)
				require.NotContains(t, err.Error(), secret)
				require.NotContains(t, err.Error(), quoted[1:len(quoted)-1])
			}
			return
		}
		addr := opt.Addr
		if !strings.Contains(address, "://") {
			require.Equal(t, address, addr)
			require.NotContains(t, addr, "@")
		}
		if opt.Network != "unix" {
			_, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			require.NotEmpty(t, port)
		}
	})
}
