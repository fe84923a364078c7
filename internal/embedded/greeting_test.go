package embedded_test

import (
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/nonsense"
)

func TestUsersComeInByTheirPasswordAlone(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, byDefault *redis.Client) {
		n.SetUser("locker", "right")
		for password, want := range map[string]string{"right": "", "wrong": "WRONGPASS"} {
			c := n.Client(func(opt *redis.Options) { opt.Username, opt.Password, opt.MaxRetries = "locker", password, -1 })
			err := c.Ping(t.Context()).Err()
			if want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, want)
			}
			require.NoError(t, c.Close())
		}
		assert.NoError(t, byDefault.Ping(t.Context()).Err())
	})
}

func TestDatabasesAreApart(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, zero *redis.Client) {
		three := n.Client(func(opt *redis.Options) { opt.DB, opt.MaxRetries = 3, -1 })
		defer three.Close()
		const set = `return redis.call('SET', KEYS[1], ARGV[1])`
		require.NoError(t, three.Eval(t.Context(), set, []string{"script"}, "v").Err())
		n.On("set", 1, embedded.Fault{LoseReply: true})
		require.Error(t, three.Set(t.Context(), "lost", "v", 0).Err())
		n.On("set", 1, embedded.Fault{Again: time.Second})
		require.NoError(t, three.Set(t.Context(), "again", "v", 0).Err())
		time.Sleep(2 * time.Second)
		assert.Empty(t, n.Keys())
		assert.Equal(t, []string{"again", "lost", "script"}, n.DB(3).Keys())
		require.NoError(t, zero.Eval(t.Context(), set, []string{"script"}, "v").Err())
		assert.Equal(t, []string{"script"}, n.Keys())
	})
}

func TestBabbleTakesThePlaceOfReplies(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		hello := nonsense.Saying{Bytes: "+HELLO\r\n", Whole: true}
		n.Babble(nonsense.Outburst{Saying: hello, Then: nonsense.GoOn})
		assert.Equal(t, "HELLO", c.Ping(t.Context()).Val())
		assert.Equal(t, "PONG", c.Ping(t.Context()).Val(), "it goes on")

		n.Babble(nonsense.Outburst{Saying: hello, Then: nonsense.Close})
		assert.Equal(t, "HELLO", c.Set(t.Context(), "k", "v", 0).Val())
		assert.True(t, n.Exists("k"), "it was executed")
		assert.Error(t, c.Ping(t.Context()).Err(), "closed")
		assert.Equal(t, "PONG", c.Ping(t.Context()).Val())

		n.Babble(nonsense.Outburst{Saying: hello, Then: nonsense.Hang})
		assert.Equal(t, "HELLO", c.Ping(t.Context()).Val())
		start := time.Now()
		time.AfterFunc(time.Second, n.Heal)
		assert.Error(t, c.Ping(t.Context()).Err(), "it hangs")
		assert.LessOrEqual(t, time.Since(start), time.Second, "and is closed in the end")

		conn, err := n.Dial(t.Context(), "", "")
		require.NoError(t, err)
		n.Babble(nonsense.Outburst{Saying: hello, After: true, Then: nonsense.Close})
		_, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		require.NoError(t, err)
		said, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Equal(t, "+PONG\r\n+HELLO\r\n", string(said))
	})
}
