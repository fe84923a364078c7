package redsynctest_test

import (
	"reflect"
	"testing"
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
