package v4scenes

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// Scenes are the tests of redsync v4 that run with every driver, in the order of its files.
var Scenes = []Scene{
	{Test: "TestMutex", Nodes: 8, play: eightAtOnce((*redsync.Mutex).Lock)},
	{
		Test: "TestTryLock", Nodes: 8, play: tryLock,
		Changed: "a TryLock that fails ends the scene: the loop of redsync v4 tries once, and then never ends",
	},
	{
		Test: "TestMutexAlreadyLocked", Nodes: 4, play: alreadyLocked,
		Changed: "the error matches ErrFailed too, besides *ErrTaken",
	},
	{Test: "TestMutexExtend", Nodes: 8, play: extend},
	{Test: "TestMutexExtendExpired", Nodes: 8, play: extendExpired},
	{
		Test: "TestSetNXOnExtendAcquiresLockWhenKeyIsExpired", Nodes: 8, play: extendSetsNothing,
		Changed: "after Until, Extend sets nothing and returns ErrLockAlreadyExpired, whatever WithSetNXOnExtend says",
	},
	{
		Test: "TestSetNXOnExtendFailsToAcquireLockWhenKeyIsTaken", Nodes: 8, play: extendTaken,
		Changed: "the option is set from the start: redsync v4 sets it after the Extend",
	},
	{Test: "TestMutexUnlockExpired", Nodes: 8, play: unlockExpired},
	{
		Test: "TestMutexQuorum", Nodes: 4, play: quorum,
		Changed: "without a quorum, Lock must fail with *ErrTaken: redsync v4 checks nothing there",
	},
	{Test: "TestValid", Nodes: 4, play: valid},
	{Test: "TestMutexLockUnlockSplit", Nodes: 4, play: split},
	{
		Test: "TestRedsync", Nodes: 8, play: first,
		Changed: "Lock must return no error: redsync v4 ignores it",
	},
}

// short is an expiry that a scene outlasts.
const short = 500 * time.Millisecond

// eightAtOnce locks eight names at the same time.
func eightAtOnce(lock func(m *redsync.Mutex) error) func(s stage) {
	return func(s stage) {
		ended := make(chan error)
		for i := range 8 {
			m := s.mutex(i)
			go func() { ended <- lockOnce(s, m, lock) }()
		}
		var failed error
		for range 8 {
			failed = errors.Join(failed, <-ended)
		}
		require.NoError(s, failed)
	}
}

func lockOnce(s stage, m *redsync.Mutex, lock func(m *redsync.Mutex) error) error {
	if err := lock(m); err != nil {
		return err
	}
	acquired := s.acquired(m)
	_, err := m.Unlock()
	return errors.Join(acquired, err)
}

func tryLock(s stage) {
	eightAtOnce(func(m *redsync.Mutex) error {
		if err := m.TryLockContext(context.Background()); err != nil {
			return err
		}
		_, err := m.Extend()
		return err
	})(s)
}

func alreadyLocked(s stage) {
	holder := s.mutex(0)
	require.NoError(s, holder.Lock())
	defer s.unlock(holder)
	s.requireAcquired(holder)
	err := s.mutex(0).TryLock()
	var taken *redsync.ErrTaken
	require.ErrorAs(s, err, &taken)
	require.ErrorIs(s, err, redsync.ErrFailed)
}

func extend(s stage) {
	m := s.mutex(0)
	require.NoError(s, m.Lock())
	defer s.unlock(m)
	pause(time.Second)
	before := s.expiries(m)
	var after []time.Duration
	for range 5 { // a slow machine may look late
		ok, err := m.Extend()
		require.NoError(s, err)
		require.True(s, ok)
		if after = s.expiries(m); allGreater(after, before) {
			return
		}
	}
	require.Fail(s, "an Extend has not prolonged all keys", "from %v to %v", before, after)
}

func allGreater(a, b []time.Duration) bool {
	for i := range a {
		if a[i] <= b[i] {
			return false
		}
	}
	return true
}

func extendExpired(s stage) {
	m := s.mutex(0, redsync.WithExpiry(short))
	require.NoError(s, m.Lock())
	s.outlast(m)
	ok, err := m.Extend()
	require.ErrorIs(s, err, redsync.ErrLockAlreadyExpired)
	require.False(s, ok)
}

func extendSetsNothing(s stage) {
	m := s.mutex(0, redsync.WithExpiry(short), redsync.WithSetNXOnExtend())
	require.NoError(s, m.Lock())
	s.outlast(m)
	ok, err := m.Extend()
	require.ErrorIs(s, err, redsync.ErrLockAlreadyExpired)
	require.False(s, ok)
	require.True(s, s.gone(m), "Extend has set keys again")
}

func extendTaken(s stage) {
	late := s.mutex(0, redsync.WithExpiry(short), redsync.WithSetNXOnExtend())
	require.NoError(s, late.Lock())
	s.outlast(late)
	next := s.mutex(0)
	require.NoError(s, next.Lock())
	defer s.unlock(next)
	ok, err := late.Extend()
	require.ErrorIs(s, err, redsync.ErrLockAlreadyExpired)
	require.False(s, ok)
	s.requireAcquired(next)
}

func unlockExpired(s stage) {
	m := s.mutex(0, redsync.WithExpiry(short))
	require.NoError(s, m.Lock())
	s.outlast(m)
	ok, err := m.Unlock()
	require.ErrorIs(s, err, redsync.ErrLockAlreadyExpired)
	require.False(s, ok)
}

// quorum locks a name for each set of nodes on which somebody else has it.
func quorum(s stage) {
	for mask := range 1 << len(s.clients) {
		m, free := s.mutex(mask, redsync.WithTries(1)), 0
		for i, c := range s.clients {
			if mask&(1<<i) == 0 {
				free++
				continue
			}
			require.NoError(s, c.Set(context.Background(), m.Name(), "somebody else", 0).Err())
		}
		err := m.Lock()
		if free > len(s.clients)/2 {
			require.NoError(s, err, "mask %04b", mask)
			s.requireAcquired(m)
			s.unlock(m)
			continue
		}
		var taken *redsync.ErrTaken
		require.ErrorAs(s, err, &taken, "mask %04b", mask)
	}
}

func valid(s stage) {
	m := s.mutex(0, redsync.WithExpiry(time.Hour), redsync.WithTimeoutFactor(0.001))
	require.NoError(s, m.Lock())
	defer s.unlock(m)
	s.requireAcquired(m)
	ok, err := m.Valid()
	require.NoError(s, err)
	require.True(s, ok)
	require.Error(s, s.mutex(0).Lock())
}

func split(s stage) {
	m := s.mutex(0, redsync.WithExpiry(time.Hour), redsync.WithTimeoutFactor(0.001))
	require.NoError(s, m.Lock())
	s.requireAcquired(m)
	other := s.mutex(0, redsync.WithExpiry(time.Hour), redsync.WithValue(m.Value()))
	ok, err := other.Unlock()
	require.NoError(s, err)
	require.True(s, ok)
	require.True(s, s.gone(m))
}

func first(s stage) {
	m := s.mutex(0)
	require.NoError(s, m.Lock())
	defer s.unlock(m)
	s.requireAcquired(m)
}

func (s stage) unlock(m *redsync.Mutex) {
	s.Helper()
	ok, err := m.Unlock()
	require.NoError(s, err)
	require.True(s, ok)
}
