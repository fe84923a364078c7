package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
)

// This file tests calls inside Do that lock several names, or permits.

// A call for several names joins if it finds all of them, in one hold or in several.
func TestSeveralNamesJoin(t *testing.T) {
	playMet(t, func(f field) {
		m := f.NewMultiMutex([]string{"a", "b", "c"})
		noError(f, m.Do(f.Context(), func(ctx context.Context) error {
			synctest.Wait()
			f.joins(ctx, f.NewMultiMutex([]string{"c", "b", "a"}), m, "all of them")
			f.joins(ctx, f.NewMultiMutex(both), m, "two of three")
			f.joins(ctx, f.NewMutex("b"), m, "one")
			f.joins(ctx, f.NewMutex("b", withShared), m, "read in write")
			f.refusesNested(ctx, f.NewMultiMutex([]string{"z", "c", "a"}), redsync.ErrNested, `"a", "c"`)
			noError(f, f.NewMultiMutex([]string{"y", "z"}).Do(ctx, func(inner context.Context) error {
				assert.Equal(f, "y, z", redsync.FromContext(inner).Name()) // a call joins only if it finds one of its names, so this Do has locked
				synctest.Wait()
				f.joins(inner, f.NewMultiMutex([]string{"a", "z"}), redsync.FromContext(inner), "of both holds")
				return nil
			}))
			return m.Err()
		}))
		f.inside("a", func(ctx context.Context) {
			f.inside("b", func(ctx context.Context) {}, withShared)
			noError(f, f.Do(ctx, "b", func(ctx context.Context) error {
				f.refusesNested(ctx, f.NewMultiMutex(both), redsync.ErrNested, upgrade, `"b"`)
				return nil
			}, withShared))
			f.refusesNested(ctx, f.NewMultiMutex(both), redsync.ErrNested, `a Do around the call holds "a"`)
		})
	})
}

// The context ends when any of the joined holds is lost, and no hold ends before the call.
func TestACallOnTwoHolds(t *testing.T) {
	for _, lost := range both {
		playAs(t, lost, func(f field) {
			var cause error
			err := f.does("a", func(ctx context.Context) error {
				return f.Do(ctx, "b", func(ctx context.Context) error {
					err := f.NewMultiMutex(both).Do(context.WithoutCancel(ctx), func(ctx context.Context) error {
						f.drop(lost)
						<-ctx.Done()
						cause = context.Cause(ctx)
						return nil
					})
					assert.ErrorIs(f, err, redsync.ErrLockLost)
					assert.ErrorIs(f, err, cause)
					return nil
				})
			})
			errorIs(f, cause, redsync.ErrLockLost)
			errorIs(f, err, cause)
		})
	}
}
