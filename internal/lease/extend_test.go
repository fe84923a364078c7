package lease

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
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
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			node := on(scripted.Yes)
			terms := newTerms(t, node)
			terms.Keeper.Waiters, terms.Keeper.Process = test.waiters, script.NewProcess()
			l := begun(t, terms)
			_, err := l.Downgrade(t.Context())
			require.NoError(t, err)
			sent := node.Sent()
			require.Len(t, sent, 2)
			assert.Equal(t, test.named, slices.Contains(sent[len(sent)-1].Args, any(terms.Keeper.Process.String())))
		})
	}
}

// A Downgrade moves the end of the validity only if a quorum confirms it, as an extension does.
func TestADowngradeThatAMinorityConfirmsProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, lost := on(scripted.Yes), false
		others := func() *scripted.Node {
			return on(func(req wire.Request) (*wire.Reply, error) {
				if lost {
					return nil, nil // no answer
				}
				return scripted.Yes(req)
			})
		}
		terms := newTerms(t, one, others(), others())
		l := begun(t, terms)
		until := l.Until()
		time.Sleep(sec)
		lost = true
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		res, err := l.Downgrade(ctx)
		require.NoError(t, err)
		require.False(t, res.Won)
		require.NotZero(t, res.Count.Granted)
		assert.Equal(t, until, l.Until())
		lost = false
		_, err = l.Downgrade(t.Context())
		require.NoError(t, err)
		assert.Greater(t, l.Until(), until)
	})
}

// An extension that a node executes shows that the node denies the queue alone.
func TestAnExtensionTellsOfAQueueThatIsDenied(t *testing.T) {
	for name, want := range map[string][]error{"lock": {errCause}, "other": nil} {
		synctest.Test(t, func(t *testing.T) {
			terms, told := newTerms(t, on(scripted.Yes)), &diary{}
			terms.Events = told
			l := begun(t, terms)
			terms.Keeper.Set.Nodes[0].Doubt(name, errCause)
			_, err := l.Extend(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, told.denied, name)
			unlock(l)
		})
	}
}

// A lease that is over sends no Downgrade: readers must not get in beside the next holder.
func TestADowngradeOfALeaseThatIsOverSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := on(scripted.Yes)
		l := begun(t, newTerms(t, node))
		sent := len(node.Sent())
		time.Sleep(8 * sec)
		_, err := l.Downgrade(t.Context())
		require.ErrorIs(t, err, errExpired)
		synctest.Wait()
		assert.Len(t, node.Sent(), sent)
	})
}
