package redsync

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/observe"
)

// hooksThat returns Hooks whose function for a kind of events calls f. The others are nil.
func hooksThat(f func(), kind string) *observe.Hooks {
	h := &observe.Hooks{}
	hook := reflect.ValueOf(h).Elem().FieldByName(kind)
	hook.Set(reflect.MakeFunc(hook.Type(), func([]reflect.Value) []reflect.Value { f(); return nil }))
	return h
}

// A teller is what tells of events: a Mutex, and what internal packages report to.
type teller struct {
	*Mutex
	*events
	node *quorum.Node
}

// tellings are how each kind of events comes about.
var tellings = map[string]func(t teller){
	"Attempt":            func(t teller) { _ = t.Lock() },
	"Vote":               func(t teller) { _ = t.Lock() },
	"Waiting":            func(t teller) { t.Waits(context.Background(), clock.Now(), 1) },
	"Acquired":           func(t teller) { _ = t.Lock() },
	"NotAcquired":        func(t teller) { _ = t.LockContext(ended) },
	"Extended":           func(t teller) { _ = t.Lock(); _, _ = t.Extend() },
	"Released":           func(t teller) { _ = t.Lock(); _, _ = t.Unlock() },
	"Detached":           func(t teller) { _ = t.Lock(); _, _ = t.Detach(context.Background()) },
	"Lost":               func(t teller) { _ = t.Lock(); time.Sleep(time.Minute) },
	"ReleaseUnconfirmed": func(t teller) { t.Unconfirmed(t.node, 1, false, nil) },
	"WakeUpDenied":       func(t teller) { t.Denied(t.node, nil) },
	"NodeDown":           func(t teller) { t.NodeDown(t.node, 0, nil) },
	"NodeUp":             func(t teller) { t.NodeUp(t.node, 0) },
	"OneServer":          func(t teller) { t.OneServer(t.node, t.node, "") },
	"TwoServers":         func(t teller) { t.TwoServers(t.node, t.node) },
	"RegisterIgnored":    func(t teller) { t.Ignored(t.node, nil) },
	"EventsDropped":      func(t teller) { t.to.Dropped(1) },
}

// ended is a context that is done.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Each function of Hooks is called, although the others are nil. Beside other Hooks it is called in order, even behind one
// that panics. On the goroutine of the notices, none is called once Close has given up waiting.
func TestEachHookIsCalled(t *testing.T) {
	all := reflect.TypeFor[observe.Hooks]()
	for i := range all.NumField() {
		kind := all.Field(i).Name
		require.Contains(t, tellings, kind)
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := ""
				tells := func(name string) *observe.Hooks { return hooksThat(func() { told += name }, kind) }
				rs, _ := onYes(t)
				m := rs.With(WithHooks(tells("a"))).NewMutex("lock", WithHooks(&observe.Hooks{}))
				e := eventsOf(&m.terms.Terms)
				tellings[kind](teller{m, e, rs.core.keeper.Set.Nodes[0]})
				synctest.Wait()
				require.Regexp(t, "^a+$", told)
				told = ""
				panics := hooksThat(func() { told += "b"; panic("the user's") }, kind)
				to := e.to.withHooks(panics, rs.core.queue()).withHooks(tells("c"), rs.core.queue())
				call := func(of *observe.Hooks) {
					hook := reflect.ValueOf(of).Elem().Field(i)
					hook.Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.Zero(hook.Type().In(1))})
				}
				for _, of := range []*observe.Hooks{&to.now, &to.later} {
					assert.PanicsWithValue(t, "the user's", func() { call(of) })
				}
				assert.Equal(t, "abcabc", told)
				told = ""
				stuck := make(chan struct{})
				rs.core.notices.Add(nil, func() { <-stuck })
				rs.core.notices.Close(time.Second)
				call(&to.later)
				assert.Equal(t, "a", told)
				assert.Panics(t, func() { call(&to.now) })
				assert.Equal(t, "aabc", told)
				close(stuck)
			})
		})
	}
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
		c := newCore(nil, formOf(0), ErrNoPools)
		other := &events{to: (*observers)(nil).withHooks(hooks, c.queue()), notices: c.notices}
		other.Lost(nil, 0, nil)
		synctest.Wait()
		rs := (&Redsync{core: c, set: New().set}).With(WithHooks(hooks))
		for range notice.Max + 1000 { // like Do, which gives each Mutex settings of its own
			e := eventsOf(&rs.NewMutex("lock", WithWatchdog()).terms.Terms)
			e.Lost(nil, 0, nil)
			e.NodeUp(&quorum.Node{}, 0)
		}
		close(release)
		synctest.Wait()
	})
	assert.Equal(t, 1+notice.Max, told)
	assert.Equal(t, 1000, missed)
	assert.Equal(t, 1, times)
}

// Without hooks an event costs nothing.
func TestEventsAllocateNothingWithoutHooks(t *testing.T) {
	rs := New().With(WithHooks(&observe.Hooks{}))
	m := rs.NewMutex("lock")
	h := lease.New(&m.terms.Terms, "v", clock.Now())
	require.Nil(t, m.terms.Events)   // without hooks, leases make no events
	require.Nil(t, m.terms.Attempts) // without hooks, attempts make no events
	ctx := t.Context()
	allocated := testing.AllocsPerRun(100, func() {
		m.tellExtended(ctx, h, h.First, 1, ErrLockLost)
	})
	assert.Zero(t, allocated)
}
