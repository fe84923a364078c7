package wire

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client of one address leads to a node of a Cluster. After a while the pool asks again: slots move.
func TestPartial(t *testing.T) {
	myself := func(is string) string { return bulk("a 10.0.0.1:1 myself," + is + "\n") }
	for name, c := range map[string]struct{ mode, answer, want string }{
		"all slots":  {"cluster", myself("master - 0 0 1 connected 0-16383"), "<nil>"},
		"some slots": {"cluster", myself("master - 0 0 1 connected 0-5460"), "serves only some of the names"},
		"a replica":  {"cluster", myself("slave b 0 0 1 connected"), "serves only some of the names"},
		"may be":     {"cluster", "-NOPERM this user\r\n", "it does not let the client ask: NOPERM this user"},
		"no Cluster": {"standalone", "", "<nil>"},
		"no INFO":    {"cluster", myself("slave b 0 0 1 connected"), "serves only some of the names"}, // HELLO tells the mode, too
	} {
		virtually(t, name, func(t *testing.T) {
			anonymous := name == "no INFO"
			p := peer(func(_ int, k *talk) {
				for cmd := range k.all {
					switch {
					case anonymous && cmd[0] == "hello":
						k.say("*2\r\n%s%s", bulk("mode"), bulk(c.mode))
					case cmd[0] == "info":
						k.say("%s", bulk("redis_mode:"+c.mode+"\r\n"))
					case cmd[0] == "cluster":
						k.say("%s", c.answer)
					default:
						k.reply(cmd)
					}
				}
			}).pool()
			p.(*streamPool).Anonymous = anonymous
			require.NoError(t, p.(Partial).Partial(), "nothing is known")
			first := answer(t, p, "echo", "1").Conn
			for range 2 {
				require.Equal(t, first, answer(t, p, "echo", "2").Conn)
				require.Contains(t, fmt.Sprint(p.(Partial).Partial()), c.want)
				time.Sleep(renewPause)
			}
			require.Equal(t, c.want != "<nil>", answer(t, p, "echo", "3").Conn > first)
		})
	}
}
