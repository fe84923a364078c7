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

// A Recorder must keep every kind of event. The test calls each function of its Hooks.
func TestRecorderKeepsEachKindOfEvent(t *testing.T) {
	r := &redsynctest.Recorder{}
	assert.Same(t, r.Hooks(), r.Hooks())
	var want []any
	hooks := reflect.ValueOf(r.Hooks()).Elem()
	for i := range hooks.NumField() {
		hook := hooks.Field(i)
		e := reflect.Zero(hook.Type().In(1))
		hook.Call([]reflect.Value{reflect.ValueOf(t.Context()), e})
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
		s.locked(redsync.WithHooks(r.Hooks()), redsync.WithExpiry(time.Second), redsync.WithTries(0))
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
		rs := nodes.Process(redsync.WithHooks(r.Hooks()), redsync.WithTries(0))
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
