package redsync_test

import (
	"testing"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// Three processes lock several names and single names, while a minority of nodes fails. No two holders share a name.
func TestSeveralNamesAtRandom(t *testing.T) {
	rushes(t, testlength.Of(1, 1, 100), 11, []bool{false, true}, []string{"a", "b", "c", "d"}, func(r *rush) {
		r.run(testlength.Of(40, 40, 60), func(rs *redsync.Redsync, options []redsync.Option) visit {
			return r.alone(rs.NewMultiMutex(r.some(), options...), r.work())
		})
	})
}
