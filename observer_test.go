package redsync

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/observe"
)

// hooksThat returns Hooks. Each of the functions calls f with the name of its field.
func hooksThat(f func(kind string)) *observe.Hooks {
	h := &observe.Hooks{}
	for all, i := reflect.ValueOf(h).Elem(), 0; i < all.NumField(); i++ {
		all.Field(i).Set(reflect.MakeFunc(all.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			f(all.Type().Field(i).Name)
			return nil
		}))
	}
	return h
}

func TestEachHookIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]bool{}
		rs, _ := onYes(t)
		m := rs.NewMutex("lock", WithHooks(hooksThat(func(kind string) {
			mu.Lock()
			defer mu.Unlock()
			told[kind] = true
		})))
		assert.Nil(t, rs.NewMutex("lock", WithHooks(&observe.Hooks{})).terms.Events) // they cost nothing
		e, node, ctx := eventsOf(&m.terms), rs.core.keeper.Set.Nodes[0], t.Context()
		_ = m.Lock()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = m.LockContext(ended)
		_, _ = m.Extend()
		_, _ = m.Unlock()
		assert.Nil(t, e.ctx, "of a lock that is over nothing is kept")
		_ = m.Lock()
		_, _ = m.Detach(ctx)
		_ = m.Lock()
		time.Sleep(time.Minute) // the lock is lost
		e.Waits(ctx, clock.Now(), 1)
		e.Unconfirmed(node, 1, false, nil)
		e.Denied(node, "x", nil)
		e.NodeDown(node, 0, nil)
		e.NodeUp(node, 0)
		e.OneServer(node, node, "")
		e.TwoServers(node, node)
		e.Ignored(node, nil)
		e.to.Dropped(1)
		synctest.Wait()
		assert.Len(t, told, reflect.TypeFor[observe.Hooks]().NumField())
	})
}

// Hooks are called in order, even those behind one that panics. On the goroutine of the notices, none is called once Close
// has given up waiting.
func TestHooksBehindAPanicAreCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := ""
		tells := func(name string) *observe.Hooks { return hooksThat(func(string) { told += name }) }
		panics := hooksThat(func(string) { told += "b"; panic("the user's") })
		c := newCore(nil, formOf(0), ErrNoPools)
		to := (*observers)(nil).withHooks(tells("a"), c.queue()).withHooks(panics, c.queue()).withHooks(tells("c"), c.queue())
		tell := func(want string, hooks observe.Hooks) {
			for all, i := reflect.ValueOf(hooks), 0; i < all.NumField(); i++ {
				hook, expect := all.Field(i), assert.NotPanics
				if want == "abc" {
					expect = assert.Panics
				}
				told = ""
				expect(t, func() { hook.Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.Zero(hook.Type().In(1))}) })
				assert.Equal(t, want, told, hook.Type())
			}
		}
		tell("abc", to.now)
		tell("abc", to.later)
		stuck := make(chan struct{})
		c.notices.Add(nil, func() { <-stuck })
		c.notices.Close(time.Second)
		tell("abc", to.now)
		tell("a", to.later)
		close(stuck)
	})
}

// Events of locks with the same hooks are dropped together. Those that no hook is for do not count.
func TestHooksMissTogetherWhatTooMuchWaitsFor(t *testing.T) {
	var told, missed, times int
	synctest.Test(t, func(*testing.T) {
		release := make(chan struct{})
		hooks := &observe.Hooks{
			Lost:          func(context.Context, observe.Lost) { <-release; told++ },
			EventsDropped: func(_ context.Context, d observe.EventsDropped) { missed += d.Events; times++ },
		}
		rs := (&Redsync{core: newCore(nil, formOf(0), ErrNoPools), set: New().set}).With(WithHooks(hooks))
		tell := func() { // like Do, which gives each Mutex settings of its own
			e := eventsOf(&rs.NewMutex("lock", WithWatchdog()).terms)
			e.Lost(nil, 0, nil)
			e.NodeUp(&quorum.Node{}, 0)
		}
		tell()
		synctest.Wait()
		for range notice.Max + 1000 {
			tell()
		}
		close(release)
		synctest.Wait()
	})
	assert.Equal(t, 1+notice.Max, told)
	assert.Equal(t, 1000, missed)
	assert.Equal(t, 1, times)
}
