package redsync_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// A recorder is an observer that keeps every event. Errors are kept beside the
// events, so that the rest of an event can be compared as a whole.
type recorder struct {
	mu     sync.Mutex
	events []any
	errs   []error
}

func (r *recorder) note(event any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.errs = append(r.events, event), append(r.errs, err)
}

func (r *recorder) ObserveAttempt(e redsync.Attempt) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveVote(e redsync.Vote) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveAcquired(e redsync.Acquired) { r.note(e, nil) }

func (r *recorder) ObserveExtended(e redsync.Extended) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveReleased(e redsync.Released) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveLost(e redsync.Lost) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveUnsettled(e redsync.Unsettled) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveMissed(e redsync.Missed) { r.note(e, nil) }

// of returns the events of one kind, in order, with their errors.
func of[E any](r *recorder) (events []E, errs []error) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.events {
		if e, ok := e.(E); ok {
			events, errs = append(events, e), append(errs, r.errs[i])
		}
	}
	return events, errs
}

// only returns the one event of a kind, with its error.
func only[E any](t *testing.T, r *recorder) (E, error) {
	t.Helper()
	events, errs := of[E](r)
	require.Len(t, events, 1)
	return events[0], errs[0]
}

// forget drops what was recorded so far.
func (r *recorder) forget() {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.errs = nil, nil
}

// observe runs f on five nodes, all known, with a recorder of what the locks of
// its field do.
func observe(t *testing.T, f func(f field, r *recorder), options ...redsync.Option) {
	t.Helper()
	play(t, func(plain field) {
		plain.meet()
		time.Sleep(time.Millisecond)
		r := &recorder{}
		plain.Redsync = plain.With(append(options, redsync.WithObserver(r))...)
		f(plain, r)
	})
}

func TestObserveVoteOfASecondPoolOnOneServerIsNoGrant(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		twins := process(append(embedded.Nodes{f.nodes[0]}, f.nodes[:4]...))
		defer twins.Close(f.Context())
		for _, n := range f.nodes[1:] {
			n.On("evalsha", 1, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		r := &recorder{}
		ok, err := twins.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithObserver(r)).Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		var granted []int
		votes, errs := of[redsync.Vote](r)
		for i, v := range votes {
			switch {
			case errs[i] == nil && !v.Late:
				granted = append(granted, v.Node)
			case !v.Late:
				assert.ErrorIs(t, errs[i], redsync.ErrDuplicateNode)
			}
		}
		assert.Len(t, granted, 3, "%v", votes)
	})
}

func TestObserveLostNotOfALockThatCloseForestalled(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		for _, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, f.NewMutex("lock").Lock(), redsync.ErrClosed) })
		time.Sleep(time.Millisecond)
		require.NoError(t, f.Close(f.Context()))
		wg.Wait()
		lost, _ := of[redsync.Lost](r)
		assert.Empty(t, lost, "it was never held")
		acquired, _ := of[redsync.Acquired](r)
		assert.Empty(t, acquired)
	})
}

func TestObserveAcquiredOnceWhereTwoCallsAdoptALock(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.With().NewMutex("lock")
		require.NoError(t, m.Lock())
		a := f.NewMutex("lock", redsync.WithValue(m.Value()))
		r.forget()
		for _, n := range f.nodes {
			n.On("evalsha", 2, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := a.Extend()
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		acquired, _ := of[redsync.Acquired](r)
		assert.Len(t, acquired, 1)
	})
}
