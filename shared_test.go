package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

func TestReadersTogetherAgainstWriters(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		f.closes(other)
		shared := redsync.WithShared()
		a, b, c := f.NewMutex("lock", shared), f.NewMutex("lock", shared), other.NewMutex("lock", shared)
		for _, m := range []*redsync.Mutex{a, b, c} {
			require.NoError(f, m.Lock())
		}
		var taken *redsync.ErrTaken
		require.ErrorAs(f, f.NewMutex("lock").TryLock(), &taken)
		require.ErrorAs(f, other.NewMultiMutex([]string{"lock", "z"}).TryLock(), &taken)
		w := f.calls(other, patient()...)
		time.Sleep(10 * time.Millisecond)
		for _, m := range []*redsync.Mutex{a, b, c} {
			require.True(f, open(w.done))
			ok, err := m.Valid()
			require.NoError(f, err)
			assert.True(f, ok)
			f.unlock(m)
		}
		f.within(w, 10*time.Millisecond)
		require.ErrorAs(f, a.TryLock(), &taken)
		readers := []*call{f.calls(f.Redsync, patient(shared)...), f.calls(f.Redsync, patient(shared)...), f.calls(other, patient(shared)...)}
		time.Sleep(10 * time.Millisecond)
		f.unlock(w.Mutex)
		for i, r := range readers {
			f.Log(i, time.Now())
			f.within(r, 10*time.Millisecond)
		}
		for _, r := range readers {
			f.unlock(r.Mutex)
		}
		f.nobodyWaits()
	})
}
