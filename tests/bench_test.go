package redsync_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// BenchmarkLockUnlock measures Lock and Unlock of free names on one server. Package bench compares libraries.
func BenchmarkLockUnlock(b *testing.B) {
	rs, callers := redsync.New(pool.New(realredis.Start(b, 1)[0].Client())), atomic.Int64{}
	assert.NoError(b, rs.Ping(b.Context())) // opens the connection
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		m := rs.NewMutex(fmt.Sprint("lock ", callers.Add(1)))
		for pb.Next() {
			assert.NoError(b, m.Lock())
			_, err := m.Unlock()
			assert.NoError(b, err)
		}
	})
	assert.NoError(b, rs.Close(b.Context()))
}
