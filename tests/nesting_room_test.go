package redsync_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed14bd9ef4/redsync"
)

// This file tests how many calls can join one hold.

// If one of several holds has no room, the call joins none of them.
func TestLimitOfOneOfTwoHolds(t *testing.T) {
	for full, other := range map[string]string{"a": "b", "b": "a"} {
		play(t, func(f field) {
			f.inside(other, func(ctx context.Context) {
				noError(f, f.Do(ctx, full, func(ctx context.Context) error {
					for range 5 {
						errorIs(f, f.NewMultiMutex(both).Do(ctx, never), redsync.ErrNested)
					}
					return f.Do(ctx, other, func(ctx context.Context) error {
						return f.Do(ctx, other, nothing)
					}) // the calls that failed count no more
				}, redsync.WithNesting(1)))
			}, redsync.WithNesting(3))
		})
	}
}

func TestNestingOutOfRange(t *testing.T) {
	onKit(t, func(k kit) {
		for _, n := range []int{0, -1} {
			refuses(t, k.NewMutex("lock", redsync.WithNesting(n)), fmt.Sprintf("WithNesting(%d) is out of range: 1 or more", n))
			says(k, k.does("lock", never, redsync.WithNesting(n)), "is out of range")
		}
	})
}
