package redsync

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Nodes that answer oddly, and pools that refuse requests or keep no order.

// An answer that none of our scripts gives does not prove that the key is gone: the release is
// repeated until the node answers as it should.
func TestReleaseWithAnOddAnswerIsRepeated(t *testing.T) {
	for name, odd := range map[string]any{
		"nothing": nil, "a text": "OK", "an array": []any{script.Mine}, "another number": int64(100), "a negative number": int64(-1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sane atomic.Bool // the node answers as it should
				p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
					if req.Args[0] == "set" || sane.Load() {
						return yes(req)
					}
					return &pool.Reply{Value: odd, Fate: pool.Answered, Conn: 1}, nil
				}}
				rs := New(p)
				m := rs.NewMutex("lock")
				require.NoError(t, m.Lock())
				ok, err := m.Unlock()
				assert.False(t, ok)
				require.ErrorContains(t, err, "odd answer")
				time.Sleep(100 * time.Millisecond)
				assert.Equal(t, 2, p.count("evalsha"), "after 0 and 50 ms")
				sane.Store(true)
				time.Sleep(20 * time.Second)
				assert.Equal(t, 3, p.count("evalsha"), "after 150 ms, and then it is settled")
				require.NoError(t, rs.Close(t.Context()))
			})
		})
	}
}

// The node executes the release before the acquire, finds no key, and answers the acquire first.
// On a pool that keeps no order of replies, a release that found no key is therefore not settled,
// even if the acquire has been answered by then: it is repeated.
func TestReleaseOnAPoolWithoutOrderIsRepeatedWhereTheAcquireIsAnsweredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool // the node has the key
		after := func(d time.Duration, req pool.Request, do func() any) {
			time.AfterFunc(d, func() { req.To.Receive(req.Tag, pool.Reply{Value: do(), Fate: pool.Answered}) })
		}
		p := &puppet{}
		p.answer = func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" { // overtaken by the release
				after(time.Second, req, func() any {
					held.Store(true)
					return "OK"
				})
				return nil, nil
			}
			found := script.Missing
			if held.Swap(false) {
				found = script.Mine
			}
			after(2*time.Second, req, func() any { return found })
			return nil, nil
		}
		rs := New(p)
		require.Error(t, rs.NewMutex("lock").TryLock())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.False(t, held.Load())
		assert.Equal(t, 2, p.count("evalsha"))
		require.NoError(t, rs.Close(t.Context()))
	})
}

// A pool that has no room for a release, although room is reserved for it, is sent the
// release again: the key is there.
func TestReleaseThatIsRefusedIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room atomic.Bool
		p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" || room.Load() {
				return yes(req)
			}
			return nil, &pool.OutstandingError{Limit: 1}
		}}
		rs := New(p)
		m := rs.NewMutex("lock")
		require.NoError(t, m.Lock())
		ok, err := m.Unlock()
		assert.False(t, ok)
		var full *pool.OutstandingError
		require.ErrorAs(t, err, &full)
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 2, p.count("evalsha"), "after 0 and 50 ms")
		room.Store(true)
		time.Sleep(20 * time.Second)
		assert.Equal(t, 3, p.count("evalsha"), "after 150 ms, and then it is settled")
		require.NoError(t, rs.Close(t.Context()))
	})
}

// A node answers a fencing acquire with a bare OK, as if it were a plain SET. That is no grant: the
// node has raised no register, so the lock would have a token that no register knows.
func TestFenceBareOKIsNoGrant(t *testing.T) {
	for name, option := range map[string]Option{"first attempt": WithTries(1), "fair": WithFair()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
					if len(req.Args) > 11 { // it has more arguments than a release
						return &pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1}, nil
					}
					return yes(req)
				}}
				rs := New(p)
				m := rs.NewMutex("lock", option, WithFencing())
				require.ErrorContains(t, m.TryLock(), `odd answer to an acquire: "OK"`)
				assert.Zero(t, m.Fence())
				require.NoError(t, rs.Close(t.Context()))
			})
		})
	}
}
