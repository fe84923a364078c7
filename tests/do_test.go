package redsync_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

var errWork = errors.New("work went wrong")

func TestDoReturnsWhatTheFunctionDid(t *testing.T) {
	for _, want := range []error{nil, errWork} {
		onKit(t, func(k kit) {
			err := k.Do(k.Context(), "lock", func(ctx context.Context) error {
				start := time.Now()
				time.Sleep(time.Minute) // many expiries
				require.NoError(t, ctx.Err())
				assert.Equal(t, 5, k.keys("lock"))
				require.Error(t, k.nodes.Process().NewMutex("lock").TryLock())
				assert.Equal(t, time.Minute, time.Since(start))
				return want
			})
			require.ErrorIs(t, err, want)
			assert.Equal(t, want == nil, err == nil)
			time.Sleep(time.Millisecond)
			k.nothingLeft()
		})
	}
}

func TestDoThatDoesNotGetTheLockCallsNothing(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(redsync.WithWatchdog())
		err := k.Do(k.Context(), "lock", never)
		require.ErrorIs(t, err, redsync.ErrFailed)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		ctx, cancel := context.WithTimeout(k.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, k.Do(ctx, "lock", never), context.DeadlineExceeded)
		require.ErrorContains(t, k.Do(k.Context(), "other", nil), "the function is nil")
		require.ErrorContains(t, k.Do(k.Context(), "", never), "must not be empty")
		require.ErrorContains(t, k.Do(k.Context(), "other", never, redsync.WithExpiry(-1)), "WithExpiry(-1ns) is out of range")
		require.ErrorContains(t, k.Do(k.Context(), "other", never, nil), "option #0 is nil")
		require.ErrorIs(t, redsync.New().Do(k.Context(), "other", never), redsync.ErrNoPools)
		assert.Zero(t, k.keys("other"))
	})
}

func TestDoTellsOfALossBesideTheFunctionsError(t *testing.T) {
	for _, worked := range []error{nil, errWork} {
		onKit(t, func(k kit) {
			var until time.Time
			err := k.Do(k.Context(), "lock", func(ctx context.Context) error {
				start := time.Now()
				k.freeze(0, 1, 2)
				<-ctx.Done()
				until = start.Add(validity)
				assert.Equal(t, until, time.Now())
				require.ErrorIs(t, ctx.Err(), context.Canceled)
				require.ErrorIs(t, context.Cause(ctx), redsync.ErrLockLost)
				require.ErrorIs(t, context.Cause(ctx), redsync.ErrLockAlreadyExpired)
				return worked
			})
			assert.Equal(t, until, time.Now(), "the call does not wait")
			require.ErrorIs(t, err, redsync.ErrLockLost)
			require.ErrorContains(t, err, `do "lock"`)
			if worked != nil {
				require.ErrorIs(t, err, worked)
			}
		})
	}
}

func TestDoTellsOfALossThatTheFunctionDidNotHeed(t *testing.T) {
	onKit(t, func(k kit) {
		err := k.Do(k.Context(), "lock", func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		}, redsync.WithMaxHold(10*time.Second))
		require.ErrorIs(t, err, redsync.ErrLockLost)
		require.ErrorIs(t, err, redsync.ErrMaxHold)
	})
}

func TestDoTellsOfAnUnlockThatFailed(t *testing.T) {
	onKit(t, func(k kit) {
		err := k.Do(k.Context(), "lock", func(context.Context) error {
			k.freeze(0, 1, 2)
			return errWork
		})
		require.ErrorIs(t, err, errWork)
		require.ErrorContains(t, err, `unlock "lock"`)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
	})
}

func TestDoUnlocksWhateverTheFunctionDoes(t *testing.T) {
	for name, c := range map[string]struct {
		work  func()
		panic any
	}{
		"returns":        {func() {}, nil},
		"panics":         {func() { panic("at the disco") }, "at the disco"},
		"ends goroutine": {runtime.Goexit, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { assert.Equal(t, c.panic, recover()) }()
					_ = k.Do(k.Context(), "lock", func(context.Context) error {
						time.Sleep(10 * time.Second)
						c.work()
						return nil
					})
				})
				wg.Wait()
				k.nothingLeft()
			})
		})
	}
}

func TestDoWhoseContextEndsUnlocks(t *testing.T) {
	onKit(t, func(k kit) {
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(k.Context())
		err := k.Do(ctx, "lock", func(ctx context.Context) error {
			time.Sleep(time.Millisecond)
			cancel(reason)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), reason)
			assert.Equal(t, 5, k.keys("lock"))
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		time.Sleep(time.Millisecond)
		k.nothingLeft()
	})
}

func TestDoOneAfterAnother(t *testing.T) {
	onKit(t, func(k kit) {
		inside, count := 0, 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				assert.NoError(t, k.Do(nil, "lock", func(context.Context) error { //nolint:staticcheck // nil is context.Background
					inside++
					assert.Equal(t, 1, inside)
					time.Sleep(10 * time.Second)
					inside--
					count++
					return nil
				}, redsync.WithTries(0)))
			})
		}
		wg.Wait()
		assert.Equal(t, 5, count)
	})
}

// After a theft, the function has already run. So the error must not look like the error for a lock that was already
// taken.
func TestDoToldOfATheftDoesNotMatchErrFailed(t *testing.T) {
	onKit(t, func(k kit) {
		failure := errors.New("of fn")
		var taken *redsync.ErrTaken
		err := k.Do(k.Context(), "lock", func(ctx context.Context) error {
			k.nodes.Steal("lock")
			<-ctx.Done()
			return failure
		})
		require.ErrorAs(t, err, &taken)
		require.ErrorIs(t, err, redsync.ErrLockLost)
		require.ErrorIs(t, err, failure)
		require.NotErrorIs(t, err, redsync.ErrFailed)

		err = k.Do(k.Context(), "lock", func(context.Context) error {
			t.Error("it was called")
			return nil
		}, redsync.WithTries(1))
		require.ErrorAs(t, err, &taken)
		require.ErrorIs(t, err, redsync.ErrFailed)
	})
}
