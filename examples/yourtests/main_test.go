package yourtests

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// TestMain shows that a program whose clients, or Redsyncs, are closed leaves no goroutine. With a machine of your own,
// goleak.VerifyTestMain(m) is enough: this one has patience with machines that are slow.
func TestMain(m *testing.M) {
	code := m.Run()
	// redismock never closes the clients that it makes for itself.
	others := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop")
	left := goleak.Find(others)
	for end := time.Now().Add(time.Minute); left != nil && time.Now().Before(end); {
		left = goleak.Find(others)
	}
	if code == 0 && left != nil {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// patient are options for a machine on which an answer may take seconds.
var patient = []redsync.Option{redsync.WithExpiry(time.Hour), redsync.WithNodeTimeout(30 * time.Second)}

// locks does with a lock on one node what a program may do.
func locks(t *testing.T, node pool.Pool) {
	t.Helper()
	rs := redsync.New(node)
	defer func() { require.NoError(t, rs.Close(context.Background())) }()
	m, rival := rs.NewMutex("orders", patient...), rs.NewMutex("orders", patient...)
	require.NoError(t, m.Lock())
	var taken *redsync.ErrTaken
	require.ErrorAs(t, rival.TryLock(), &taken)
	for _, call := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
		ok, err := call()
		require.True(t, ok && err == nil, err)
	}
	require.NoError(t, rival.TryLock())
	ok, err := rival.Unlock()
	require.True(t, ok && err == nil, err)
}
