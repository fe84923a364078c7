package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

var errWork = errors.New("work went wrong")

// A function that returns the cause of its context returns the very loss that Do tells of. A loss is told of whatever the
// function returns, and work that has run must not look like work that another process does.
func TestALossThatTheFunctionReturnsIsSaidOnce(t *testing.T) {
	for name, call := range map[string]func(k kit, ctx context.Context, fn work) error{
		"Do":    func(k kit, ctx context.Context, fn work) error { return k.Do(ctx, "lock", fn) },
		"TryDo": func(k kit, ctx context.Context, fn work) error { return k.ran(k.TryDo(ctx, "lock", fn)) },
		"Mutex.Do": func(k kit, ctx context.Context, fn work) error {
			return k.NewMutex("lock").Do(ctx, fn)
		},
		"Lead": func(k kit, ctx context.Context, fn work) error {
			ctx, cancel := context.WithCancel(ctx)
			return k.Lead(ctx, "lock", func(ctx context.Context) error {
				defer cancel() // otherwise Lead campaigns again
				return fn(ctx)
			})
		},
		"Do inside of Do": func(k kit, ctx context.Context, fn work) error {
			return k.Do(ctx, "lock", func(ctx context.Context) error { return k.Do(ctx, "lock", fn) })
		},
	} {
		returns := func(err error) work { return func(context.Context) error { return err } }
		for what, c := range map[string]struct {
			returned work
			losses   int
		}{
			"the cause":          {context.Cause, 1},
			"a step's error":     {func(ctx context.Context) error { return fmt.Errorf("step 3: %w", context.Cause(ctx)) }, 2},
			"the context's":      {context.Context.Err, 1},
			"of work":            {returns(errWork), 1},
			"of another lock":    {returns(fmt.Errorf("redsync: extend \"other\": %w", redsync.ErrLockLost)), 2},
			"nothing":            {nothing, 1},
			"the sentinel alone": {returns(redsync.ErrLockLost), 2},
		} {
			if name != "Do" && what != "the cause" && testlength.InGate(0, 0, 1, 1) == 0 {
				continue
			}
			kitAs(t, name+" "+what, func(k kit) {
				var returned error
				err := call(k, k.Context(), func(ctx context.Context) error {
					k.nodes.Steal("lock")
					<-ctx.Done()
					require.ErrorIs(k, context.Cause(ctx), redsync.ErrLockLost)
					returned = c.returned(ctx)
					return returned
				})
				require.ErrorIs(k, err, redsync.ErrLockLost)
				isTaken(k, err)
				require.NotErrorIs(k, err, redsync.ErrFailed)
				if returned != nil {
					require.ErrorIs(k, err, returned)
				}
				assert.Equal(k, c.losses, strings.Count(err.Error(), "lock lost"), "%v", err)
				assert.Regexp(k, `^redsync: (do|lead) "lock": lock lost: `, err.Error(), "the reason comes first")
			})
		}
	}
}

func TestDoUnlocksWhateverTheFunctionDoes(t *testing.T) {
	for _, c := range []struct {
		end   func()
		panic any
	}{{func() {}, nil}, {func() { panic(errWork) }, errWork}, {runtime.Goexit, nil}} {
		onKit(t, func(k kit) {
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { assert.Equal(k, c.panic, recover()) }()
				_ = k.Do(k.Context(), "lock", func(context.Context) error {
					time.Sleep(10 * sec)
					c.end()
					return nil
				})
			})
			wg.Wait()
			k.nothingLeft()
		})
	}
}

// Several Dos inside each other lose two locks. Each loss is said once, by the innermost call, and the others pass it on.
func TestEachLossOfNestedDosIsSaidOnce(t *testing.T) {
	kitMet(t, func(k kit) {
		o := withMaxHold(10 * sec)
		err := k.Do(k.Context(), "a", func(ctx context.Context) error {
			return k.Do(ctx, "b", func(ctx context.Context) error {
				return k.Do(ctx, "a", func(ctx context.Context) error {
					<-ctx.Done()
					return errors.Join(errWork, context.Cause(ctx))
				}, o)
			}, o)
		}, o)
		errorIs(k, err, errWork, redsync.ErrMaxHold)
		for _, name := range both {
			assert.Equal(k, 1, strings.Count(err.Error(), `"`+name+`"`), "%v", err)
		}
	})
}
