package redsync_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
)

// Ten Redsyncs together send no more than one would: an attempt and its release every half second.
func TestRedsyncsOnTheSameClientsAreServedInOrder(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(append(mode, withExpiry(minute))...)
		clients := clientsOf(f.nodes)
		var calls []*call
		for range 10 {
			rs := on(clients)
			f.closes(rs)
			calls = append(calls, f.calls(rs, patient(mode...)...))
		}
		sleep(100 * ms)
		before := f.commands("evalsha")
		sleep(10 * sec)
		assert.LessOrEqual(f, f.commands("evalsha")-before, 5*2*22)
		start := time.Now()
		f.unlock(m)
		assert.Equal(f, ascending(10), f.inOrder(calls, ms))
		took(f, start, 10*ms, "nobody waits for a timer")
		f.nobodyWaits()
	})
}

// Close ends only what belongs to its own Redsync.
func TestCloseEndsNothingOfAnotherRedsync(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(mode...)
		clients := clientsOf(f.nodes)
		a, b := on(clients), on(clients)
		f.closes(b)
		first, second := f.calls(a, patient(mode...)...), f.calls(b, patient(mode...)...)
		sleep(10 * ms)
		shut(f, a)
		<-first.done
		for _, err := range []error{first.err, a.NewMutex("lock").Lock()} {
			errorIs(f, err, redsync.ErrClosed)
		}
		sleep(100 * ms)
		f.atOnce(m, second)
		f.unlock(second.Mutex)
		assert.Equal(f, 5, f.commands("subscribe"))
	})
}

// subscriptions counts the goroutines that keep a subscription.
func subscriptions() int { return inStacks("wire.(*Subscription).run(") }

// inStacks counts what in the stacks of the goroutines of this bubble, the head line of each included.
func inStacks(what string) (count int) {
	stacks := make([]byte, 1<<22)
	all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
	own, _, _ := strings.Cut(all[0], "\n") // "goroutine 7 [running, synctest bubble 3]:"
	for _, stack := range all {
		if head, _, _ := strings.Cut(stack, "\n"); strings.HasSuffix(head, own[strings.LastIndex(own, ","):]) {
			count += strings.Count(stack, what)
		}
	}
	return count
}

// The subscriptions end when the last Redsync on these clients is closed. play checks that nothing is left.
func TestCloseOfTheLastRedsyncEndsTheSubscriptions(t *testing.T) {
	play(t, func(f field) {
		f.held()
		clients := clientsOf(f.nodes)
		a, b := on(clients), on(clients)
		require.Error(f, a.NewMutex("lock").LockContext(limited(f, 30*ms)))
		shut(f, a)
		synctest.Wait()
		assert.Equal(f, 5, subscriptions(), "b may wait")
		shut(f, b)
		shut(f, a) // which counts once
		sleep(ms)
		synctest.Wait()
		assert.Zero(f, subscriptions())

		// A Redsync that comes afterwards subscribes again.
		c := on(clients)
		f.closes(c)
		f.calls(c, patient()...).cancel()
		sleep(10 * ms)
		assert.Equal(f, 10, f.commands("subscribe"))
	})
}

func TestRedsyncsOnTheSameClientsShareKnownTokens(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		a, b := on(clients), on(clients)
		f.closes(a, b)
		ahead := uint64(time.Now().Add(hour).UnixMicro())
		fortests.KnowsToken(a, "lock", ahead)
		m := locked(f, b.NewMutex("lock", withFencing))
		assert.Equal(f, ahead+1, m.Fence())
	})
}

// A program need not close what it makes for a request.
func TestARedsyncThatNobodyClosesIsNotKept(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "a:1"})
	defer func() { _ = client.Close() }()
	keeper := weak.Make(fortests.Keeper(on([]*redis.Client{client})))
	assert.Eventually(t, func() bool {
		runtime.GC()
		return keeper.Value() == nil
	}, minute, 10*ms)
}
