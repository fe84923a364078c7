package cost

import (
	"context"

	"github.com/seed14bd9ef4/redsync"
)

func init() {
	add(
		Row{Name: "Lock + Unlock, permits", Call: pairs(redsync.WithPermits(5))},
		Row{Name: "Lock + Unlock, shared", Call: pairs(redsync.WithShared())},
		Row{Name: "Lock + Unlock, two names", Call: func(r *redsync.Redsync) (call, end func()) {
			m := r.NewMultiMutex([]string{name, "b"})
			return func() { pair(m) }, nil
		}},
		Row{Name: "a held lock, shared", Hold: held(redsync.WithShared())},
		Row{Name: "a held lock, permits", Hold: held(redsync.WithPermits(5))},
	)
}

func init() {
	add(Row{Name: "TryDo", Call: func(r *redsync.Redsync) (call, end func()) {
		return func() { must(r.TryDo(context.Background(), name, nothing)) }, nil
	}})
}
