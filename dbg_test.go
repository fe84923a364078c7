package redsync_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

type attemptLog struct{ name string }

func (a attemptLog) ObserveAttempt(_ context.Context, e observe.Attempt) {
	fmt.Printf("%s %v %+v\n", a.name, time.Now().Format("05.000000"), e)
}

func TestDbg(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		f.closes(other)
		shared := redsync.WithShared()
		w := other.NewMutex("lock")
		require.NoError(f, w.Lock())
		r := []*call{f.calls(f.Redsync, patient(shared, redsync.WithObserver(attemptLog{"f0"}))...)}
		time.Sleep(10 * time.Millisecond)
		fmt.Printf("%q\n", f.nodes[0].Client().Keys(f.Context(), "*").Val()); fmt.Println(f.nodes[0].Client().Get(f.Context(), "lock:queue").Result())
		f.unlock(w)
		fmt.Println("unlocked", time.Now().Format("05.000000"))
		<-r[0].done
		f.unlock(r[0].Mutex)
	})
}
