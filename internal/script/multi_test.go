package script_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

func TestMultiSmoke(t *testing.T) {
	onBoth(t, func(g ground) {
		m := script.NewMulti([]string{"a", "b", "c"}).With("v")
		for _, f := range []script.Fence{{}, token(7)} {
			place := script.Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
			e, err := script.ParseEnteredMulti(g.do(script.EnterMulti(m, ttl, place, f).InFull()...))
			require.NoError(t, err)
			t.Log(e)
			e, err = script.ParseEnteredMulti(g.do(script.EnterMulti(m.With("w"), ttl, place, f).InFull()...))
			require.NoError(t, err)
			t.Log(e)
			assert.Equal(t, int64(1), g.do(script.ExtendMulti(m, ttl).InFull()...))
			assert.Equal(t, int64(1), g.do(script.HealMulti(m, ttl).InFull()...))
			assert.Equal(t, int64(1), g.do(script.ValidMulti(m).InFull()...))
			turnover := script.Turnover{Alive: alive, Leave: []script.Ticket{aTicket(1, us)}, Parts: []script.Part{{}, {Enters: aTicket(2, us)}, {Enters: aTicket(2, they)}}}
			r, err := script.ParseReleasedMulti(g.do(script.ReleaseMulti(m, script.ProcessOf(us), turnover, f).InFull()...))
			require.NoError(t, err)
			t.Log(r)
			r, err = script.ParseReleasedMulti(g.do(script.ReleaseMulti(m, script.Process{}, script.Turnover{}, f).InFull()...))
			require.NoError(t, err)
			t.Log(r)
			r, err = script.ParseReleasedMulti(g.do(script.ReleaseMultiQuietly(m, f).InFull()...))
			require.NoError(t, err)
			t.Log(r, g.do("keys", "*"))
			g.do("flushall")
			e, err = script.ParseEnteredMulti(g.do(script.EnterMulti(m, ttl, script.Place{}, f).InFull()...))
			require.NoError(t, err)
			r, err = script.ParseReleasedMulti(g.do(script.ReleaseMulti(m, script.Process{}, script.Turnover{}, f).InFull()...))
			require.NoError(t, err)
			t.Log(e, r, g.do("keys", "*"))
			g.do("flushall")
		}
	})
}
