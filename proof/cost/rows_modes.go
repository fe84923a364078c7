package cost

import "github.com/seed14bd9ef4/redsync"

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
