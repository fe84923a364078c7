package redsync_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows when the watchdog extends a lock, on nodes whose replies the test decides. For whole sets of nodes
// see watchdog_nodes_test.go.

// deafToExtensions is an Answer that extensions do not get.
func deafToExtensions(req wire.Request) (*wire.Reply, error) {
	if isExtend(req) {
		return nil, nil
	}
	return scripted.Yes(req)
}

// failingJournal returns a journal that fails extensions while the flag is set.
func failingJournal() (*atomic.Bool, *journal) {
	failing := &atomic.Bool{}
	return failing, newJournal(func(req wire.Request) (*wire.Reply, error) {
		if isExtend(req) && failing.Load() {
			return nil, errBroken
		}
		return scripted.Yes(req)
	})
}

func TestWatchdogExtendsAtEveryThirdOfTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		m := locked(t, redsync.New(j).NewMutex("lock", nineSeconds, withWatchdog))
		time.Sleep(30*sec + ms)
		extends := j.extended()
		for i, at := range extends {
			assert.Equal(t, time.Duration(i+1)*3*sec, at)
		}
		assert.Len(t, extends, 10)
		assert.Equal(t, 39*sec-92*ms, m.Until().Sub(j.start))
		alive(t, m)
		confirmed(t, m.Unlock)
		time.Sleep(minute)
		assert.Empty(t, j.extended())
		assert.Len(t, j.releases, 1)
	})
}

func TestWatchdogTriesAgainAndKeepsToItsThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing, j := failingJournal()
		failing.Store(true)
		m := locked(t, redsync.New(j).NewMutex("lock", withExpiry(9600*ms), withWatchdog))
		time.Sleep(4500 * ms)
		failing.Store(false)
		time.Sleep(10 * sec)
		// The first repetition comes after an eighth of the patience of 960 ms, the next after twice that, and so on.
		assert.Equal(t, []time.Duration{
			3200 * ms, 3320 * ms, 3560 * ms, 4040 * ms, 5000 * ms,
			6400 * ms, 9600 * ms, 12800 * ms,
		}, j.extended())
		failing.Store(true)
		time.Sleep(1700 * ms)
		assert.Equal(t, []time.Duration{16000 * ms, 16120 * ms}, j.extended()) // after a success, the repetitions begin again with the shortest pause
		confirmed(t, m.Unlock)
	})
}

func TestWatchdogTriesAgainBesideANodeThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, j := failingJournal()
		m := locked(t, redsync.New(j, newJournal(nil), newJournal(deafToExtensions)).NewMutex("lock", nineSeconds, withWatchdog))
		away.Store(true)
		time.Sleep(4 * sec)
		away.Store(false)
		time.Sleep(3 * sec)
		assert.Equal(t, []time.Duration{3000 * ms, 3900 * ms, 4800 * ms, 6000 * ms}, j.extended())
		confirmed(t, m.Unlock)
	})
}

func TestWatchdogExtendsAnAdoptedLockFromItsExtendOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(nil)
		m := redsync.New(j).NewMutex("lock", nineSeconds, withWatchdog, withValue("v"))
		time.Sleep(10 * sec)
		assert.Empty(t, j.extended())
		assert.Nil(t, m.Lost())
		isOver(t, m, redsync.ErrNotHeld)
		confirmed(t, m.Extend)
		time.Sleep(7 * sec)
		assert.Equal(t, []time.Duration{10 * sec, 13 * sec, 16 * sec}, j.extended())
		alive(t, m)
		confirmed(t, m.Unlock)
		time.Sleep(minute)
		assert.Empty(t, j.extended())
	})
}

// The nodes do not answer extensions. Otherwise the answer to each would be a second event.
func TestExtensionsThatAreDueAtOnceAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted.Node{Answer: deafToExtensions}
		rs := redsync.New(p).With(nineSeconds, withWatchdog)
		for i := range 300 {
			locked(t, rs.NewMutex(strconv.Itoa(i)))
		}
		synctest.Wait()
		before := p.Count("evalsha")
		time.Sleep(3 * sec)
		for _, want := range []int{128, 256, 300} {
			synctest.Wait()
			assert.Equal(t, want, p.Count("evalsha")-before)
			time.Sleep(ms)
		}
		shut(t, rs)
	})
}

// An extension is under way at Unlock. Whatever its answer is, nothing but releases follows.
func TestWatchdogSendsOnlyReleasesAfterUnlock(t *testing.T) {
	for _, late := range []wire.Reply{
		{Value: int64(1), Fate: wire.Answered, Conn: 1},
		{Value: int64(0), Fate: wire.Answered, Conn: 1},
		{Err: lacksScript{}, Fate: wire.Answered, Conn: 1},
		{Err: errBroken, Conn: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked wire.Request
			j := newJournal(func(req wire.Request) (*wire.Reply, error) {
				if isExtend(req) {
					asked = req
					return nil, nil
				}
				return scripted.Yes(req)
			})
			m := locked(t, redsync.New(j).NewMutex("lock", withWatchdog, withSetNXOnExtend))
			time.Sleep(4 * sec)
			require.NotEmpty(t, j.extended())
			confirmed(t, m.Unlock)
			asked.To.Receive(asked.Tag, late)
			time.Sleep(minute)
			assert.Empty(t, j.extended())
			isOver(t, m, redsync.ErrNotHeld)
		})
	}
}
