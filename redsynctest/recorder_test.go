package redsynctest_test

import (
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

var _ interface {
	observe.AttemptObserver
	observe.VoteObserver
	observe.WaitingObserver
	observe.AcquiredObserver
	observe.NotAcquiredObserver
	observe.ExtendedObserver
	observe.ReleasedObserver
	observe.DetachedObserver
	observe.LostObserver
	observe.ReleaseUnconfirmedObserver
	observe.WakeUpDeniedObserver
	observe.NodeDownObserver
	observe.NodeUpObserver
	observe.OneServerObserver
	observe.TwoServersObserver
	observe.RegisterIgnoredObserver
	observe.EventsDroppedObserver
} = (*redsynctest.Recorder)(nil)

// A Recorder must keep every kind of event that the library tells observers of. The test calls each
// of its Observe methods.
func TestRecorderKeepsEachKindOfEvent(t *testing.T) {
	r := &redsynctest.Recorder{}
	v := reflect.ValueOf(r)
	var want []any
	for i := range v.NumMethod() {
		m := v.Method(i)
		if m.Type().NumIn() != 2 {
			continue // not a method of an observer
		}
		e := reflect.Zero(m.Type().In(1))
		m.Call([]reflect.Value{reflect.ValueOf(t.Context()), e})
		want = append(want, e.Interface())
	}
	assert.Len(t, want, 17)
	assert.Equal(t, want, r.All())
	assert.Equal(t, []observe.NodeUp{{}}, redsynctest.Events[observe.NodeUp](r))
	r.Reset()
	assert.Empty(t, r.All())
	assert.Empty(t, redsynctest.Events[observe.NodeUp](r))
}

func TestAwaitEventsWaitsForALoss(t *testing.T) {
	inEachForm(t, func(s *scene) {
		r := &redsynctest.Recorder{}
		s.locked(redsync.WithObserver(r), redsync.WithExpiry(time.Second), redsync.WithTries(0))
		lost := redsynctest.AwaitEvents[observe.Lost](s, r, 1)
		require.Len(s, lost, 1)
		assert.Equal(s, name, lost[0].Name)
		assert.ErrorIs(s, lost[0].Err, redsync.ErrLockLost)
		assert.NotEmpty(s, redsynctest.Events[observe.Acquired](r))
	})
}

func TestRecorderServesManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 3)
		r := &redsynctest.Recorder{}
		rs := nodes.Process(redsync.WithObserver(r), redsync.WithTries(0))
		const callers = 20
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				mutex := rs.NewMutex(name)
				assert.NoError(t, mutex.Lock())
				_, err := mutex.Unlock()
				assert.NoError(t, err)
			})
		}
		assert.GreaterOrEqual(t, len(redsynctest.AwaitEvents[observe.Released](t, r, callers)), callers)
		wg.Wait()
		assert.Len(t, redsynctest.Events[observe.Acquired](r), callers)
	})
}
