package redsync

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock/clocktest"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A journal is a puppet that notes when it is sent extensions and releases, which
// have one argument less.
type journal struct {
	puppet
	start time.Time

	mu       sync.Mutex
	extends  []time.Duration
	releases []time.Duration
}

// newJournal returns a node that answers as answer does, or yes.
func newJournal(answer func(pool.Request) (*pool.Reply, error)) *journal {
	j := &journal{start: time.Now()}
	if answer == nil {
		answer = yes
	}
	j.answer = func(req pool.Request) (*pool.Reply, error) {
		j.note(req)
		return answer(req)
	}
	return j
}

func (j *journal) note(req pool.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case isExtend(req):
		j.extends = append(j.extends, time.Since(j.start))
	case req.Args[0] != "set":
		j.releases = append(j.releases, time.Since(j.start))
	}
}

func isExtend(req pool.Request) bool { return req.Args[0] != "set" && req.Args[2] == 1 }

// extended returns when extensions were sent, and starts a new list.
func (j *journal) extended() []time.Duration {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	extends := j.extends
	j.extends = nil
	return extends
}

// open reports whether c has not been closed.
func open(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestWatchdogExtendsAtEveryThirdOfTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		m := New(j).NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog())
		require.NoError(t, m.Lock())
		time.Sleep(30*time.Second + time.Millisecond)
		extends := j.extended()
		for i, at := range extends {
			assert.Equal(t, time.Duration(i+1)*3*time.Second, at)
		}
		assert.Len(t, extends, 10)
		assert.Equal(t, 39*time.Second-92*time.Millisecond, m.Until().Sub(j.start))
		require.NoError(t, m.Err())
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Empty(t, j.extended())
		assert.Len(t, j.releases, 1)
	})
}

func TestWatchdogLateTimerShiftsNothing(t *testing.T) {
	h := testHold(t, 1, at(time.Hour, 0))
	h.timing.expiry = 9 * time.Second
	w := &watchdog{hold: h}
	for held, want := range map[time.Duration]time.Duration{
		0:                                3 * time.Second,
		time.Second:                      2 * time.Second,
		3*time.Second - 1:                1,
		3 * time.Second:                  3 * time.Second,
		3*time.Second + time.Millisecond: 2999 * time.Millisecond,
		5 * time.Second:                  time.Second,
		3001 * time.Second:               2 * time.Second,
	} {
		assert.Equal(t, want, w.next(at(time.Hour+held, time.Minute)), "held for %v", held)
	}
}

func TestWatchdogTriesAgainAndKeepsToItsThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		j := newJournal(func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) && failing.Load() {
				return nil, errPuppet
			}
			return yes(req)
		})
		m := New(j).NewMutex("lock", WithExpiry(9600*time.Millisecond), WithWatchdog())
		require.NoError(t, m.Lock())
		time.Sleep(4500 * time.Millisecond)
		failing.Store(false)
		time.Sleep(10 * time.Second)
		ms := time.Millisecond
		// After an eighth of the patience of 960 ms, twice that, and so on.
		assert.Equal(t, []time.Duration{
			3200 * ms, 3320 * ms, 3560 * ms, 4040 * ms, 5000 * ms,
			6400 * ms, 9600 * ms, 12800 * ms,
		}, j.extended())
		failing.Store(true)
		time.Sleep(1700 * time.Millisecond)
		assert.Equal(t, []time.Duration{16000 * ms, 16120 * ms}, j.extended(), "from the beginning")
		_, err := m.Unlock()
		require.NoError(t, err)
	})
}

func TestWatchdogIsNotHeldUpByOneRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := atomic.Bool{}
		answer := func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) && refuse.Load() {
				return nil, &pool.OutstandingError{Limit: 1}
			}
			return yes(req)
		}
		j := newJournal(answer)
		m := New(j, newJournal(answer), newJournal(nil)).NewMutex("lock", WithWatchdog())
		require.NoError(t, m.Lock())
		lost := m.Lost()
		refuse.Store(true)
		time.Sleep(8*time.Second/3 + 50*time.Millisecond)
		refuse.Store(false)
		time.Sleep(100 * time.Millisecond)
		extends := j.extended()
		require.Len(t, extends, 2)
		assert.Equal(t, 100*time.Millisecond, extends[1]-extends[0])
		assert.Equal(t, extends[1]+8*time.Second-82*time.Millisecond, m.Until().Sub(j.start))
		assert.True(t, open(lost))
		_, err := m.Unlock()
		require.NoError(t, err)
	})
}

func TestWatchdogTriesAgainBesideANodeThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		j := newJournal(func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) && away.Load() {
				return nil, errPuppet
			}
			return yes(req)
		})
		deaf := newJournal(func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				return nil, nil
			}
			return yes(req)
		})
		m := New(j, newJournal(nil), deaf).NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog())
		require.NoError(t, m.Lock())
		away.Store(true)
		time.Sleep(4 * time.Second)
		away.Store(false)
		time.Sleep(3 * time.Second)
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{3000 * ms, 3900 * ms, 4800 * ms, 6000 * ms}, j.extended())
		_, err := m.Unlock()
		require.NoError(t, err)
	})
}

// A node that takes longer than the watchdog's patience does not stop it: votes
// count until the old Until.
func TestWatchdogBearsNodesSlowerThanItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				time.AfterFunc(2*time.Second, func() {
					reply, _ := yes(req)
					req.To.Receive(req.Tag, *reply)
				})
				return nil, nil
			}
			return yes(req)
		})
		m := New(j).NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog())
		require.NoError(t, m.Lock())
		lost := m.Lost()
		time.Sleep(5*time.Second + time.Millisecond)
		assert.Equal(t, 12*time.Second-92*time.Millisecond, m.Until().Sub(j.start))
		time.Sleep(time.Minute)
		assert.True(t, open(lost))
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
	})
}

func TestWatchdogSendsOnlyReleasesAfterUnlock(t *testing.T) {
	for name, reply := range map[string]*pool.Reply{
		"no answer":            nil,
		"yes, later":           {Value: int64(1), Fate: pool.Answered, Conn: 1},
		"missing, later":       {Value: int64(0), Fate: pool.Answered, Conn: 1},
		"no script, later":     {Err: noScript{}, Fate: pool.Answered, Conn: 1},
		"lost with connection": {Err: errPuppet, Conn: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var extends []pool.Request
				j := newJournal(func(req pool.Request) (*pool.Reply, error) {
					if isExtend(req) {
						extends = append(extends, req)
						return nil, nil
					}
					return yes(req)
				})
				m := New(j).NewMutex("lock", WithWatchdog(), WithSetNXOnExtend())
				require.NoError(t, m.Lock())
				time.Sleep(4 * time.Second)
				require.NotEmpty(t, j.extended(), "one is under way")
				ok, err := m.Unlock()
				require.NoError(t, err)
				assert.True(t, ok)
				for _, req := range extends {
					if reply != nil {
						req.To.Receive(req.Tag, *reply)
					}
				}
				time.Sleep(time.Minute)
				assert.Empty(t, j.extended())
				require.ErrorIs(t, m.Err(), ErrNotHeld)
				assert.Zero(t, m.Until())
			})
		})
	}
}

// noScript is the reply of a node that does not have a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScript) RedisError()   {}

func TestWatchdogStartsAnewWithEachLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		m := New(j).NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog())
		for _, start := range []time.Duration{0, 5 * time.Second, 10 * time.Second} {
			require.NoError(t, m.Lock())
			time.Sleep(4 * time.Second)
			_, err := m.Unlock()
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{start + 3*time.Second}, j.extended())
			time.Sleep(time.Second)
		}
	})
}

func TestWatchdogExtendsAnAdoptedLockFromItsExtendOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		m := New(j).NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog(), WithValue("v"))
		time.Sleep(10 * time.Second)
		assert.Empty(t, j.extended())
		assert.Nil(t, m.Lost())
		require.ErrorIs(t, m.Err(), ErrNotHeld)
		_, err := m.Extend()
		require.NoError(t, err)
		time.Sleep(7 * time.Second)
		assert.Equal(t, []time.Duration{10 * time.Second, 13 * time.Second, 16 * time.Second}, j.extended())
		require.NoError(t, m.Err())
		_, err = m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Empty(t, j.extended())
	})
}

func TestWatchdogEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		rs := New(j)
		m := rs.NewMutex("lock", WithWatchdog())
		require.NoError(t, m.Lock())
		lost := m.Lost()
		require.NoError(t, rs.Close(t.Context()))
		assert.False(t, open(lost))
		require.ErrorIs(t, m.Err(), ErrLockLost)
		require.ErrorIs(t, m.Err(), ErrClosed)
		time.Sleep(time.Minute)
		assert.Empty(t, j.extended())
		assert.Len(t, j.releases, 1)
	})
}

// Close may come at any point of Lock.
func TestWatchdogOfALockThatMeetsClose(t *testing.T) {
	for range 300 {
		rs := New(&puppet{answer: yes})
		m := rs.NewMutex("lock", WithWatchdog())
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Lock() })
		wg.Go(func() { _ = rs.Close(t.Context()) })
		wg.Wait()
		require.Error(t, m.Err())
	}
}

// An Extend that waits for a slow node (WithFailFast(false)) must not hold up the
// watchdogs of other locks when its lock is lost.
func TestWatchdogFindsALossWhileAnExtendLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deaf, missing atomic.Bool
		quick := func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) && req.Args[3] == "lost" && missing.Load() {
				return &pool.Reply{Value: int64(0), Fate: pool.Answered, Conn: 1}, nil
			}
			return yes(req)
		}
		slow := func(req pool.Request) (*pool.Reply, error) {
			if deaf.Load() {
				return nil, nil
			}
			return yes(req)
		}
		rs := New(newJournal(quick), newJournal(quick), newJournal(slow))
		m := rs.NewMutex("lost", WithExpiry(time.Hour), WithWatchdog(), WithFailFast(false))
		other := rs.NewMutex("other", WithExpiry(3*time.Second), WithWatchdog())
		require.NoError(t, m.Lock())
		require.NoError(t, other.Lock())
		deaf.Store(true)
		time.Sleep(20*time.Minute - time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := m.Extend() // decided at once; waits for the slow node
			assert.ErrorIs(t, err, ErrLockLost)
		})
		synctest.Wait()
		missing.Store(true)
		lost, others := m.Lost(), other.Lost()
		time.Sleep(time.Second + time.Millisecond)
		assert.False(t, open(lost))
		wg.Wait()
		time.Sleep(10 * time.Second)
		assert.True(t, open(others))
		require.NoError(t, other.Err())
		require.Error(t, rs.Close(t.Context()), "one node never answers")
	})
}

func TestWatchdogSendsNothingInFullAfterUntil(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var unanswered []pool.Request
			j := newJournal(func(req pool.Request) (*pool.Reply, error) {
				if isExtend(req) {
					unanswered = append(unanswered, req)
					return nil, nil
				}
				return yes(req)
			})
			rs := New(j)
			m := rs.NewMutex("lock", WithWatchdog(), WithSetNXOnExtend())
			require.NoError(t, m.Lock())
			<-m.Lost()
			time.Sleep(late)
			synctest.Wait()
			assert.Equal(t, late == 0, len(m.hold.watchdog.rounds) > 0, "the next time it wakes it gives them up")
			require.Len(t, unanswered, 7)
			for _, req := range unanswered {
				req.To.Receive(req.Tag, pool.Reply{Err: noScript{}, Fate: pool.Answered, Conn: 1})
				synctest.Wait()
				assert.Empty(t, m.hold.watchdog.rounds, "an answer wakes it as well")
			}
			assert.Len(t, unanswered, 7)
			assert.Zero(t, j.count("eval"), "it would set the key")
			require.NoError(t, rs.Close(t.Context()))
		})
	}
}

// extensions notes what became of them.
type extensions []Extended

func (e *extensions) ObserveExtended(event Extended) { *e = append(*e, event) }

func TestWatchdogStartsNoRoundBesideOneThatIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []pool.Request
		rs := New(newJournal(func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				asked = append(asked, req)
				return nil, nil
			}
			return yes(req)
		}))
		var told extensions
		m := rs.NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog(), WithObserver(&told))
		require.NoError(t, m.Lock())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Len(t, asked, 1)
		resume := rs.core.extends.Pause() // other alarms are firing
		reply, _ := yes(asked[0])
		asked[0].To.Receive(asked[0].Tag, *reply)
		m.hold.watchdog.Fire(false) // was due before the verdict
		resume()
		synctest.Wait()
		assert.Len(t, asked, 1)
		require.Len(t, told, 1)
		require.NoError(t, told[0].Err)
		_, err := m.Unlock()
		require.NoError(t, err)
	})
}

// Clocks.

// clocks plays f with a watched lock of 9 s (or so) and a clock to step.
func clocks(t *testing.T, f func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex), options ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, j := clocktest.StepWall(t), newJournal(nil)
		rs := New(j)
		m := rs.NewMutex("lock", append([]Option{WithExpiry(9 * time.Second)}, options...)...)
		require.NoError(t, m.Lock())
		f(t, s, j, m)
		require.NoError(t, rs.Close(t.Context()))
		synctest.Wait()
	})
}

func TestClockSetForwardEndsTheHold(t *testing.T) {
	for _, expiry := range []time.Duration{100 * time.Millisecond, 9 * time.Second, time.Hour} {
		t.Run(expiry.String(), func(t *testing.T) {
			clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
				lost := m.Lost()
				time.Sleep(expiry / 8)
				require.True(t, open(lost))
				s.Step(2 * time.Hour)
				start := time.Now()
				<-lost
				assert.LessOrEqual(t, time.Since(start), min(expiry/10, time.Second))
				assert.Zero(t, m.Remaining())
				require.ErrorIs(t, m.Err(), ErrLockLost)
				require.ErrorIs(t, m.Err(), ErrLockAlreadyExpired)
				time.Sleep(time.Minute)
				assert.Empty(t, j.extended())
				s.Step(-2 * time.Hour)
				assert.Zero(t, m.Remaining(), "what is over stays so")
				require.ErrorIs(t, m.Err(), ErrLockLost)
				ok, err := m.Extend()
				assert.False(t, ok)
				require.ErrorIs(t, err, ErrLockAlreadyExpired)
				assert.Empty(t, j.extended())
			}, WithExpiry(expiry), WithWatchdog())
		})
	}
}

func TestClockSetForwardIsNoticedByEveryMethod(t *testing.T) {
	for name, notice := range map[string]func(*Mutex) bool{
		"Remaining": func(m *Mutex) bool { return m.Remaining() == 0 },
		"Err":       func(m *Mutex) bool { return errors.Is(m.Err(), ErrLockLost) },
		"Lost":      func(m *Mutex) bool { return !open(m.Lost()) },
		"Extend":    func(m *Mutex) bool { _, err := m.Extend(); return errors.Is(err, ErrLockAlreadyExpired) },
		"Valid":     func(m *Mutex) bool { _, err := m.Valid(); return errors.Is(err, ErrLockAlreadyExpired) },
	} {
		t.Run(name, func(t *testing.T) {
			clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
				lost := m.Lost()
				s.Step(time.Hour)
				assert.True(t, notice(m))
				assert.False(t, open(lost), "closed by whoever notices")
				assert.Len(t, j.sent, 1, "without asking")
			})
		})
	}
}

func TestClockSetBackChangesNothing(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost, left := m.Lost(), m.Remaining()
		s.Step(-time.Hour)
		assert.Equal(t, left, m.Remaining())
		<-lost
		assert.Equal(t, 9*time.Second-92*time.Millisecond, time.Since(j.start))
	})
}

func TestClockSetBackAndForwardChangesNothing(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost := m.Lost()
		s.Step(-time.Hour)
		time.Sleep(2 * time.Second)
		s.Step(time.Hour)
		<-lost
		assert.Equal(t, 9*time.Second-92*time.Millisecond, time.Since(j.start))
	})
}

func TestClockSetBackLeavesTheWatchdogItsThirds(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost := m.Lost()
		s.Step(-time.Hour)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}, j.extended())
		assert.True(t, open(lost))
	}, WithWatchdog())
}

func TestClockSetForwardALittleEndsTheHoldEarlierByThat(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost := m.Lost()
		time.Sleep(time.Second)
		s.Step(3 * time.Second)
		<-lost
		assert.Equal(t, 6*time.Second-92*time.Millisecond, time.Since(j.start))
	})
}

func TestClockSetForwardWakesTheWatchdog(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost := m.Lost()
		s.Step(7 * time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []time.Duration{900 * time.Millisecond, 3 * time.Second, 6 * time.Second, 9 * time.Second}, j.extended())
		assert.True(t, open(lost))
		require.NoError(t, m.Err())
	}, WithWatchdog())
}

// A hold with a shorter expiry asks for comparisons more often: that moves none that is
// due to a later time.
func TestClockSetForwardIsNoticedWhoeverLocksMeanwhile(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost := m.Lost()
		rs := &Redsync{core: m.core, set: m.set}
		s.Step(time.Hour)
		var others sync.WaitGroup
		for i := range 10 {
			others.Go(func() {
				time.Sleep(time.Duration(i+1) * 600 * time.Millisecond)
				shorter := WithExpiry(8900*time.Millisecond - time.Duration(i)*100*time.Millisecond)
				assert.NoError(t, rs.NewMutex(strconv.Itoa(i), shorter).Lock())
			})
		}
		<-lost
		assert.Equal(t, 900*time.Millisecond, time.Since(j.start))
		others.Wait()
	})
}

func TestClockSetForwardEndsWhatWaitsForTheNodes(t *testing.T) {
	for name, operation := range map[string]func(*Mutex) (bool, error){"Extend": (*Mutex).Extend, "Valid": (*Mutex).Valid} {
		for expiry, compare := range map[time.Duration]time.Duration{
			9 * time.Second: 900 * time.Millisecond,
			time.Hour:       time.Second,
		} {
			t.Run(name+" "+expiry.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := clocktest.StepWall(t)
					rs := New(&puppet{answer: func(req pool.Request) (*pool.Reply, error) {
						if req.Args[0] == "set" {
							return yes(req)
						}
						return nil, nil
					}})
					m := rs.NewMutex("lock", WithExpiry(expiry), WithNodeTimeout(4*time.Second))
					require.NoError(t, m.Lock())
					start := time.Now()
					time.AfterFunc(compare*3/2, func() { s.Step(2 * time.Hour) })
					ok, err := operation(m)
					assert.Equal(t, 2*compare, time.Since(start))
					assert.False(t, ok)
					require.ErrorIs(t, err, ErrLockAlreadyExpired)
					require.NoError(t, rs.Close(t.Context()))
				})
			})
		}
	}
}

func TestClockThatRunsFastEndsTheHoldEarlier(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *Mutex) {
		lost := m.Lost()
		for range 8 {
			for range 10 { // none of which is noticed
				time.Sleep(90 * time.Millisecond)
				s.Step(400 * time.Microsecond)
			}
		}
		require.True(t, open(lost))
		left := m.Remaining()
		start := time.Now()
		<-lost
		assert.InDelta(t, left, time.Since(start), float64(time.Millisecond))
		assert.Less(t, time.Since(j.start), 9*time.Second-92*time.Millisecond-30*time.Millisecond)
	})
}

func TestClockSetForwardDuringLockCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clocktest.StepWall(t)
		j := newJournal(func(req pool.Request) (*pool.Reply, error) {
			s.Step(5 * time.Second)
			return yes(req)
		})
		m := New(j).NewMutex("lock", WithExpiry(9*time.Second))
		require.NoError(t, m.Lock())
		<-m.Lost()
		assert.Equal(t, 4*time.Second-92*time.Millisecond, time.Since(j.start))
	})
}

// The nodes are silent, so that each lock is one event and not two.
func TestExtensionsThatAreDueAtOnceAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				return nil, nil
			}
			return yes(req)
		}}
		rs := New(p).With(WithExpiry(9*time.Second), WithWatchdog())
		for i := range 300 {
			require.NoError(t, rs.NewMutex(strconv.Itoa(i)).Lock())
		}
		synctest.Wait()
		before := p.count("evalsha")
		time.Sleep(3 * time.Second)
		for _, want := range []int{128, 256, 300} {
			synctest.Wait()
			assert.Equal(t, want, p.count("evalsha")-before)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, rs.Close(t.Context()))
	})
}

func TestWatchdogManyLocksExtendThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		rs := New(j)
		var locks []*Mutex
		for i := range 100 {
			m := rs.NewMutex(strconv.Itoa(i), WithExpiry(time.Duration(i+1)*time.Second), WithWatchdog())
			require.NoError(t, m.Lock())
			locks = append(locks, m)
		}
		time.Sleep(10 * time.Minute)
		for _, m := range locks {
			require.NoError(t, m.Err())
			_, err := m.Unlock()
			require.NoError(t, err)
		}
		j.extended()
		time.Sleep(time.Hour)
		assert.Empty(t, j.extended())
	})
}
