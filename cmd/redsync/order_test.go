package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// With --fair waiters are served in the order in which they came, and those with a higher --priority first.
func TestOrderOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		holder := nodes.Redsync().NewMutex("x", redsyncOptions(t, "--fair")...)
		require.NoError(t, holder.Lock())
		served := make(chan string, 4)
		for _, waiter := range [][]string{
			{"first", "--fair"}, {"second", "--fair"}, {"low", "--fair", "--priority", "-1"}, {"high", "--fair", "--priority", "5"},
		} {
			m := nodes.Redsync().With(redsync.WithTries(0)).NewMutex("x", redsyncOptions(t, waiter[1:]...)...)
			go func() {
				if m.Lock() == nil {
					served <- waiter[0]
					m.Unlock()
				}
			}()
			time.Sleep(time.Second)
		}
		_, err := holder.Unlock()
		require.NoError(t, err)
		for _, want := range []string{"high", "first", "second", "low"} {
			require.Equal(t, want, <-served)
		}
	})
}

// redsyncOptions returns the options of the lock for flags of run.
func redsyncOptions(t *testing.T, flags ...string) []redsync.Option {
	j := must(parseJob("run", append(flags, "x", "--", "true")))
	return j.options()
}
