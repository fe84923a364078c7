package redsync

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/pool"
)

func TestWatchdogExtendsAtEveryThirdOfTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var extends []time.Duration
		p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "evalsha" {
				mu.Lock()
				defer mu.Unlock()
				extends = append(extends, time.Since(start))
			}
			return yes(req)
		}}
		m := New(p).NewMutex("lock", WithExpiry(9*time.Second), WithWatchdog())
		require.NoError(t, m.Lock())
		time.Sleep(30*time.Second + time.Millisecond)
		mu.Lock()
		for i, at := range extends {
			assert.Equal(t, time.Duration(i+1)*3*time.Second, at)
		}
		assert.Len(t, extends, 10)
		mu.Unlock()
		assert.Equal(t, 39*time.Second-92*time.Millisecond, m.Until().Sub(start))
		require.NoError(t, m.Err())
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, 11, p.count("evalsha"), "the last is the release")
	})
}
