package cost

import (
	"context"

	"github.com/seed14bd9ef4/redsync"
)

func init() {
	add(Row{Name: "TryDo", Call: func(r *redsync.Redsync) (call, end func()) {
		return func() {
			_, err := r.TryDo(context.Background(), name, nothing)
			must(err)
		}, nil
	}})
}
