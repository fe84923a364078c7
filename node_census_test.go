package redsync

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Votes of nodes that are one server, in every order.

// A stage is puppets whose replies the test delivers, in the order it likes.
type stage struct {
	*Redsync
	puppets [3]*puppet
	grants  bool            // answer at once that all is well, from unknown servers
	waiting [3]pool.Request // what was asked since
}

func newStage() *stage {
	s := &stage{grants: true}
	var pools []pool.Pool
	for i := range s.puppets {
		s.puppets[i] = &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if s.grants {
				return yes(req)
			}
			s.waiting[i] = req
			return nil, nil
		}}
		pools = append(pools, s.puppets[i])
	}
	s.Redsync = New(pools...)
	return s
}

// deliver is node i's answer to what it was asked last.
func (s *stage) deliver(i int, answer int64, server *pool.Server) {
	s.waiting[i].To.Receive(i, pool.Reply{Value: answer, Fate: pool.Answered, Conn: 1, Server: server})
	synctest.Wait()
}

var orders = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// Of 0 and 1, which turn out to be one server, and 2 each says yes or no. The
// outcome is that of two servers, whichever order they answer in.
func TestVotesOfOneServerCountOnce(t *testing.T) {
	twin, twinAgain := &pool.Server{RunID: "twin"}, &pool.Server{RunID: "twin"}
	servers := [3]*pool.Server{twin, twinAgain, {RunID: "other"}}
	for name, operation := range map[string]func(*Mutex) (bool, error){
		"Extend": (*Mutex).Extend, "Valid": (*Mutex).Valid, "Unlock": (*Mutex).Unlock,
	} {
		for _, failFast := range []bool{true, false} {
			for yeses := range 8 {
				for _, order := range orders {
					t.Run(fmt.Sprintf("%s failFast=%v yes=%03b order=%v", name, failFast, yeses, order), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							s := newStage()
							m := s.NewMutex("lock", WithFailFast(failFast))
							require.NoError(t, m.Lock())
							s.grants = false
							var ok bool
							var err error
							done := make(chan struct{})
							go func() {
								defer close(done)
								ok, err = operation(m)
							}()
							synctest.Wait()
							for _, i := range order {
								answer := script.Missing
								if yeses&(1<<i) != 0 {
									answer = script.Mine
								}
								s.deliver(i, answer, servers[i])
							}
							<-done
							assert.Equal(t, yeses&4 != 0 && yeses&3 != 0, ok)
							if name == "Extend" {
								// Two that have no such key prove a loss.
								proven := yeses == 0 || yeses&(yeses-1) == 0
								assert.Equal(t, proven, errors.Is(err, ErrLockLost), "%v", err)
							}
							require.ErrorIs(t, s.core.duplicate(), ErrDuplicateNode)
							s.grants = true
							time.Sleep(time.Minute) // releases are repeated where nothing came
							require.NoError(t, s.Close(t.Context()))
						})
					})
				}
			}
		}
	}
}

func TestVotesOfUnknownServersCount(t *testing.T) {
	for name, servers := range map[string][3]*pool.Server{
		"none known":    {},
		"one known":     {0: {RunID: "a"}},
		"all different": {{RunID: "a"}, {RunID: "b"}, {RunID: "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				m := s.NewMutex("lock")
				require.NoError(t, m.Lock())
				s.grants = false
				go func() {
					synctest.Wait()
					s.deliver(0, script.Mine, servers[0])
					s.deliver(1, script.Mine, servers[1])
				}()
				ok, err := m.Extend()
				require.NoError(t, err)
				assert.True(t, ok)
			})
		})
	}
}

// The validity begins when the acquire is sent, not while it is asked who the nodes are.
func TestLockAfterDuplicateNodeLastsAsLongAsAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.core.meet(0, &pool.Server{RunID: "twin"})
		s.core.meet(1, &pool.Server{RunID: "twin"})
		s.puppets[2].answer = func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "ping" {
				return nil, nil // it is frozen
			}
			return yes(req)
		}
		m := s.NewMutex("lock", WithExpiry(time.Second), WithTimeoutFactor(0.4))
		begin := time.Now()
		require.NoError(t, m.TryLock())
		require.NotZero(t, time.Since(begin))
		assert.Equal(t, 988*time.Millisecond, m.Remaining())
	})
}

func TestNodeCounts(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		guard  time.Duration
		server *pool.Server
		want   bool
	}{
		"no guard, unknown":         {0, nil, true},
		"no guard, just started":    {0, &pool.Server{At: now}, true},
		"unknown":                   {time.Second, nil, false},
		"new":                       {time.Second, &pool.Server{At: now, New: true}, true},
		"just started":              {time.Second, &pool.Server{At: now}, false},
		"a nanosecond too early":    {time.Second, &pool.Server{At: now.Add(1), Uptime: 2012 * time.Millisecond}, false},
		"in time":                   {time.Second, &pool.Server{At: now, Uptime: 2012 * time.Millisecond}, true},
		"identified long ago":       {time.Second, &pool.Server{At: now.Add(-2012 * time.Millisecond)}, true},
		"identified after the vote": {time.Second, &pool.Server{At: now.Add(time.Hour), Uptime: time.Hour}, false},
		"longest guard":             {math.MaxInt64, &pool.Server{At: now, Uptime: time.Hour}, false},
		"almost the longest":        {math.MaxInt64 - time.Second, &pool.Server{At: now, Uptime: time.Hour}, false},
	} {
		err := (&node{guard: c.guard}).distrust(c.server, now, 0.01, 0)
		assert.Equal(t, c.want, err == nil, "%s: %v", name, err)
	}
}
