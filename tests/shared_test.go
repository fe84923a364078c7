package redsync_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
)

func TestReadersTogetherAgainstWriters(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		holders := []*redsync.Mutex{f.locks(withShared), f.locks(withShared), locked(f, other.NewMutex("lock", withShared))}
		isTaken(f, f.tries())
		isTaken(f, other.NewMultiMutex([]string{"lock", "z"}).TryLock())
		w := f.waits(other)
		time.Sleep(10 * ms)
		for _, m := range holders {
			f.stillWait(w)
			f.confirms(m.Valid())
			f.unlock(m)
		}
		f.within(w, 10*ms)
		isTaken(f, holders[0].TryLock())
		readers := []*call{f.inLine(withShared), f.inLine(withShared), f.waits(other, withShared)}
		time.Sleep(10 * ms)
		f.unlock(w)
		for _, r := range readers {
			f.within(r, 10*ms)
		}
		for _, r := range readers {
			f.unlock(r)
		}
		f.nobodyWaits()
	})
}

// entries counts the readers of a name.
func (f field) entries(name string) int {
	f.Helper()
	return len(f.readersOf(name))
}

// readersOf returns the values of the readers of a name that a quorum of nodes has. A node may lack one: the release of the
// lock before came there after the reader's attempt.
func (f field) readersOf(name string) (values []string) {
	f.Helper()
	synctest.Wait()
	on := make(map[string]int)
	for _, n := range f.nodes {
		text, err := n.Client().Get(f.Context(), name).Result()
		if err != nil || !strings.HasPrefix(text, "readers\n") {
			continue
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(text[len("readers\n"):], "\n"), "\n") {
			value := line[:max(0, strings.LastIndex(line, " "))] // a value with an owner has spaces
			if on[value]++; on[value] == len(f.nodes)/2+1 {
				values = append(values, value)
			}
		}
	}
	return values
}

// Readers of one process have one value on the nodes, until the last of them unlocks. One that comes after 20 ms has its
// own.
func TestReadersOfAProcessShareAHold(t *testing.T) {
	play(t, func(f field) {
		w := f.held()
		var readers []*call
		for range 20 {
			readers = append(readers, f.inLine(withShared))
		}
		f.unlock(w)
		for i, entries := range []int{1, 2} {
			time.Sleep(10 * ms)
			late := f.calls(f.Redsync, withShared)
			f.within(late, 0)
			assert.Equal(f, entries, f.entries("lock"), "after %v", (i+1)*10)
			defer f.unlock(late)
		}
		for _, r := range readers {
			f.served(r, 0)
		}
		assert.Equal(f, 2, f.entries("lock")) // the late readers are there
	})
}

// A reader that comes, or that waits, while a writer of the process waits does not share a hold. Otherwise readers
// would starve writers.
func TestReadersBehindAWriterDoNotShare(t *testing.T) {
	play(t, func(f field) {
		r := f.held(withShared)
		w := f.inLine()
		late := f.inLine(withShared)
		time.Sleep(ms)
		f.stillWait(w, late)
		f.unlock(r)
		f.within(w, 0)
		f.stillWait(late)
		f.unlock(w)
		f.served(late, 10*ms)
	})
}

// Readers share a hold only if they have the same terms, only in its first milliseconds, and only while no caller has
// read its value.
func TestWhatKeepsReadersFromSharing(t *testing.T) {
	parallelComputing(t)
	a, b := withOwner("a"), withOwner("b")
	for name, c := range map[string]struct {
		first, second redsync.Option
		between       func(f field, m *redsync.Mutex)
		shares        bool
	}{
		"nothing":          {shares: true},
		"fair":             {first: withFair, shares: true},
		"expiry":           {second: nineSeconds},
		"drift":            {second: redsync.WithDriftFactor(0.02)},
		"node deadline":    {second: withNodeTimeout(99 * ms)},
		"lock delay":       {first: withLockDelay(sec)},
		"fencing":          {second: withFencing},
		"fencing first":    {first: withFencing},
		"max hold":         {second: withMaxHold(minute)},
		"generated values": {second: withGenValueFunc(func() (string, error) { return rand.Text(), nil })},
		"hand-over":        {second: noHandOver},
		"owners":           {first: a, second: b},
		"no owner":         {first: a},
		"healing":          {second: withSetNXOnExtend},
		"value":            {between: func(_ field, m *redsync.Mutex) { _ = m.Value() }},
		"sequencer":        {between: func(_ field, m *redsync.Mutex) { _ = m.Sequencer() }},
		"time":             {between: func(field, *redsync.Mutex) { time.Sleep(20 * ms) }},
		"loss": {between: func(f field, m *redsync.Mutex) {
			f.lose(allNodes...)
			failsWith(f, m.Valid, redsync.ErrLockLost)
		}},
	} {
		playAs(t, name, func(f field) {
			locks := func(option redsync.Option) *redsync.Mutex {
				return f.locks(cmp.Or(option, withShared), withShared)
			}
			a := locks(c.first)
			if c.between != nil {
				c.between(f, a)
			}
			before := f.readersOf("lock")
			b := locks(c.second)
			assert.Equal(f, c.shares, slices.Equal(before, f.readersOf("lock")))
			_, _ = a.Unlock()
			synctest.Wait()
			f.confirms(b.Valid())
			f.unlock(b)
			f.noKeys()
		})
	}
}

// A downgrade lets waiting readers in. A waiting writer stays out until the last reader has unlocked.
func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		m := f.held()
		own, foreign := f.inLine(withShared), f.waits(other, withShared)
		time.Sleep(10 * ms)
		writer := f.waits(other)
		time.Sleep(10 * ms)
		until := m.Until()
		f.downgrades(m)
		assert.True(f, m.Until().After(until))
		f.within(own, 10*ms)
		f.within(foreign, 10*ms)
		f.extends(m)
		f.confirms(m.Valid())
		noError(f, m.Downgrade(f.Context())) // a second Downgrade succeeds, too
		s := m.Sequencer()
		noError(f, f.current(f.Redsync, s))
		f.unlock(own)
		f.unlock(m)
		errorIs(f, f.current(f.Redsync, s), redsync.ErrLockAlreadyExpired)
		f.stillWait(writer)
		f.unlock(foreign)
		f.served(writer, 10*ms)
		noError(f, m.Lock()) // the next Lock is exclusive again
		erred(f, other.NewMutex("lock", withShared).TryLock())
		f.unlock(m)
		f.nobodyWaits()
	})
}

// If too few nodes confirm a downgrade, the hold is shared all the same. The next extension tells the other nodes.
func TestDowngradeWithoutAQuorum(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.freeze(majority...)
		until := m.Until()
		errorIs(f, m.Downgrade(f.Context()), redsync.ErrExtendFailed)
		assert.Equal(f, until, m.Until())
		f.thaw(majority...)
		time.Sleep(100 * ms)
		f.extends(m)
		r := obtained(f, f.another().NewMutex("lock", withShared))
		erred(f, f.another().NewMutex("lock").TryLock())
		f.unlock(r)
		f.unlock(m)
		f.noKeys()
	})
}

func TestWhatCannotBeDowngraded(t *testing.T) {
	play(t, func(f field) {
		for text, m := range map[string]*redsync.Mutex{
			"several names": f.NewMultiMutex(both), "WithShared": f.NewMutex("lock", withShared),
		} {
			errorIs(f, m.Downgrade(f.Context()), redsync.ErrNotHeld)
			locked(f, m)
			says(f, m.Downgrade(f.Context()), text)
			f.unlock(m)
		}
	})
}

// A Lock that would wait for a read lock around it fails at once.
func TestUpgradeIsAnError(t *testing.T) {
	playMet(t, func(f field) {
		f.inside("a", func(ctx context.Context) {
			noError(f, f.Do(ctx, "between", func(ctx context.Context) error {
				synctest.Wait()
				f.refusesNested(ctx, f.NewMutex("a"), redsync.ErrNested, upgrade)
				f.refusesNested(ctx, f.NewMultiMutex(both), redsync.ErrNested, upgrade)
				noError(f, f.Do(ctx, "a", nothing, withShared))
				require.NotErrorIs(f, f.another().NewMutex("a").TryLockContext(ctx), redsync.ErrNested) // another Redsync cannot know of the read lock around the call
				return f.Do(ctx, "b", nothing)
			}))
		}, withShared)
		f.inside("a", func(ctx context.Context) {
			require.NotContains(f, f.NewMutex("a").TryLockContext(ctx).Error(), upgrade)
			noError(f, redsync.FromContext(ctx).Downgrade(ctx))
			errorIs(f, f.NewMutex("a").LockContext(ctx), redsync.ErrNested)
		})
	})
}

// A shared Mutex has one hold by Lock at a time, and any number of Dos.
func TestASharedMutexUsedByMany(t *testing.T) {
	play(t, func(f field) {
		m := f.held(withShared)
		value := m.Value()
		says(f, m.TryLock(), "use a Mutex for each holder")
		says(f, m.LockContext(f.Context()), "use a Mutex for each holder")
		assert.Equal(f, value, m.Value())
		time.AfterFunc(10*ms, func() { f.unlock(m) })
		noError(f, m.Lock()) // Lock waits for the end of the hold
		assert.NotEqual(f, value, m.Value())
		f.unlock(m)

		var all sync.WaitGroup
		inside := atomic.Int64{}
		for range 10 {
			all.Go(func() {
				assert.NoError(f, m.Do(f.Context(), func(ctx context.Context) error {
					inside.Add(1)
					time.Sleep(sec)
					_, err := redsync.FromContext(ctx).Valid()
					assert.EqualValues(f, 10, inside.Load(), "all of them at once")
					return err
				}))
			})
		}
		all.Wait()
		inside.Store(0)
		for range 10 { // Locks of one Mutex at once take turns
			all.Go(func() {
				assert.NoError(f, m.Lock())
				assert.EqualValues(f, 1, inside.Add(1))
				time.Sleep(10 * ms)
				inside.Add(-1)
				f.unlock(m)
			})
		}
		all.Wait()
		f.noKeys()
	})
}

// A shared hold moves to another process. One that several readers share does not, because an Unlock there would end the
// hold for all of them.
func TestSharedHoldIsDetachedAndAdopted(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		a, b := f.locks(withShared), f.locks(withShared)
		s := b.Sequencer()
		assert.True(f, strings.HasPrefix(s.String(), "redsync2.readers."), s)
		require.Equal(f, s, must(redsync.ParseSequencer(s.String())))
		noError(f, f.current(other, s))
		says(f, second(other.NewMutex("lock", withSequencer(s)).Unlock()), "share the hold")
		_, err := a.Detach(f.Context())
		says(f, err, "share the hold")
		f.unlock(b)

		s = f.detaches(a)
		assert.Equal(f, s, must(redsync.ParseSequencer(s.String())))
		c := f.locks(withShared)
		assert.Equal(f, 2, f.entries("lock")) // a new reader does not share a hold that was given away
		f.confirms(other.NewMutex("lock", withSequencer(s), withShared).Valid())
		d := other.NewMutex("lock", withSequencer(s))
		f.extends(d)
		says(f, d.Downgrade(f.Context()), "WithShared")
		f.unlock(c)
		erred(f, f.tries())
		f.unlock(d)
		errorIs(f, f.current(other, s), redsync.ErrLockAlreadyExpired)
		f.noKeys()
	})
}

// Readers that share a hold have the same Until: an extension by one of them counts for all. While one extends the hold on
// slow nodes, the others send nothing.
func TestReadersThatShareAHoldExtendItOnceForAll(t *testing.T) {
	for _, slow := range []bool{false, true} {
		costs := func(readers int) (commands int) {
			play(t, func(f field) {
				plain := f.locks(withShared)
				var all []*redsync.Mutex
				for range readers {
					all = append(all, f.locks(withShared, withWatchdog))
					time.Sleep(ms)
				}
				if slow {
					f.slow(100 * ms)
				}
				before := f.traffic()
				time.Sleep(20 * sec)
				commands = f.traffic() - before
				f.confirms(plain.Valid())
				for _, m := range all {
					f.unlock(m)
				}
				time.Sleep(time.Until(plain.Until()))
				isOver(f, plain, redsync.ErrLockLost)
				time.Sleep(sec)
				f.noKeys()
			})
			return commands
		}
		assert.Equal(t, costs(1), costs(10))
	}
}

// However many readers of a process come and go, it makes at most 50 entries per second for a name and for each kind
// of readers that can share a hold.
func TestReadersOfAProcessMakeFewEntries(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, c := range map[string]struct {
		expiry time.Duration
		tries  int // 0: all readers call Lock; 1: all call TryLock; 2: every second one does
		kinds  int
	}{
		"expiry of 200 ms":          {200 * ms, 0, 1},
		"Lock and TryLock":          {8 * sec, 2, 1},
		"two expiries, and TryLock": {8 * sec, 1, 2},
	} {
		playMetAs(t, name, func(f field) {
			f.slow(100 * time.Microsecond)
			var made atomic.Int64
			count := atAttempts(func(observe.Attempt) { made.Add(1) })
			ctx := limited(f, sec)
			var all sync.WaitGroup
			var locks atomic.Int64
			for i := range 32 {
				kind := withExpiry(c.expiry + time.Duration(i%c.kinds)*sec)
				m := f.NewMutex("lock", patient(withShared, count, kind)...)
				lock := m.LockContext
				if c.tries > 0 && i/c.kinds%c.tries == 0 {
					lock = m.TryLockContext
				}
				all.Go(func() {
					for lock(ctx) == nil {
						locks.Add(1)
						time.Sleep(time.Duration(1+i%3) * ms)
						_, _ = m.Unlock()
					}
					assert.Error(f, ctx.Err())
				})
			}
			all.Wait()
			assert.LessOrEqual(f, made.Load(), int64(c.kinds*(50+4))) // some attempts are made at the end
			assert.Greater(f, locks.Load(), int64(10_000))
		})
	}
}

// A TryLock may wait for the attempt of another reader. If that attempt fails, the TryLock makes its own. It waits no
// longer than an attempt of its own would take.
func TestATryLockBesideAnother(t *testing.T) {
	playMet(t, func(f field) {
		m, other := f.NewMutex("lock", withShared), f.NewMutex("lock", withShared)
		w := f.held()
		f.slowly(1, 10*ms, allNodes...)
		first := make(chan error)
		go func() { first <- other.TryLock() }()
		time.AfterFunc(ms, func() { f.unlock(w) })
		time.Sleep(5 * ms)
		obtained(f, m)
		erred(f, <-first) // the first TryLock fails: the nodes executed its attempt before the release
		f.unlocks(m)

		f.freeze(majority...)
		for _, most := range []time.Duration{2 * patience, 2 * ms} {
			go func() { first <- other.TryLock() }()
			time.Sleep(ms)
			start := time.Now()
			erred(f, m.TryLockContext(limited(f, most)))
			assert.LessOrEqual(f, time.Since(start), most)
			erred(f, <-first)
		}
		f.thaw(majority...)
		f.noKeys()
	})
}
