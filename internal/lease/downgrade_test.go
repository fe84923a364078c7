package lease

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A crowd is the Waiters of a process in which somebody waits.
type crowd struct{ nobody }

func (crowd) Any() bool { return true }

// The nodes tell other processes of a Downgrade. The process itself learns from the replies whether its readers may go on,
// so if it has waiters, it says who it is.
func TestADowngradeNamesTheProcessIfItHasWaiters(t *testing.T) {
	for name, test := range map[string]struct {
		waiters Waiters
		named   bool
	}{"somebody waits": {crowd{}, true}, "nobody waits": {nobody{}, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := on(puppet.Yes)
				terms := newTerms(timingOf(8*time.Second), node)
				terms.Keeper.Waiters, terms.Keeper.Process = test.waiters, script.NewProcess()
				l := begun(t, terms)
				_, err := l.Downgrade(t.Context())
				require.NoError(t, err)
				sent := node.Sent()
				require.Len(t, sent, 2)
				assert.Equal(t, test.named, slices.Contains(sent[len(sent)-1].Args, any(terms.Keeper.Process.String())))
				require.NoError(t, closes(t.Context(), terms.Keeper))
			})
		})
	}
}
