package wiretest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A call records that the pool called a method of a Listener.
type call struct {
	what string
	text string // the payload of Message
	err  error
}

const (
	subscribed   = "Subscribed"
	message      = "Message"
	unsubscribed = "Unsubscribed"
	refused      = "Refused"
)

// A recorder is a Listener that records its calls. It fails the test if two calls overlap or one
// comes after Close.
type recorder struct {
	t *testing.T
	// machine, if set, excuses a subscription that was lost because the machine stood still.
	machine *stall.Watch
	// then, if set, is called with every call before it is remembered.
	then func(call)

	inside atomic.Int32
	closed atomic.Bool

	mu    sync.Mutex
	calls []call
}

func (e *recorder) record(c call) {
	if e.inside.Add(1) != 1 {
		e.t.Errorf("the pool called %s while another method of the Listener ran", c.what)
	}
	defer e.inside.Add(-1)
	if e.closed.Load() {
		e.t.Errorf("the pool called %s after Close", c.what)
	}
	if e.then != nil {
		e.then(c)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
}

func (e *recorder) Subscribed()            { e.record(call{what: subscribed}) }
func (e *recorder) Message(payload string) { e.record(call{what: message, text: payload}) }
func (e *recorder) Unsubscribed(err error) { e.record(call{what: unsubscribed, err: err}) }
func (e *recorder) Refused(err error)      { e.record(call{what: refused, err: err}) }

// all returns the calls so far.
func (e *recorder) all() []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]call(nil), e.calls...)
}

// begun returns the calls without those of Unsubscribed that come first: a slow node may not confirm in time.
func (e *recorder) begun() []call {
	calls := e.all()
	for len(calls) > 0 && calls[0].what == unsubscribed {
		calls = calls[1:]
	}
	return calls
}

// undisturbed skips the test if the pool has said that the subscription was lost, and the machine stood still: a node sends
// no message twice.
func (e *recorder) undisturbed() {
	e.t.Helper()
	isLoss := func(c call) bool { return c.what == unsubscribed }
	if e.machine != nil && slices.ContainsFunc(e.begun(), isLoss) && e.machine.Longest() >= stoodStill {
		e.t.Skip("a subscription was lost, as the pool has said, while the machine stood still")
	}
}

// count returns how many calls of that kind there were.
func (e *recorder) count(what string) (n int) {
	for _, c := range e.all() {
		if c.what == what {
			n++
		}
	}
	return n
}

// messages returns the payloads so far.
func (e *recorder) messages() (payloads []string) {
	for _, c := range e.all() {
		if c.what == message {
			payloads = append(payloads, c.text)
		}
	}
	return payloads
}

// await waits until there have been n calls of that kind.
func (e *recorder) await(what string, n int) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("%d calls of %s", n, what), func() bool { e.undisturbed(); return e.count(what) >= n })
}

// listen subscribes e, and skips the test if p is not a Subscriber. The end of the test closes
// the Subscription.
func listen(t *testing.T, p wire.Pool, channel string, e *recorder) *wire.Subscription {
	t.Helper()
	s, ok := p.(wire.Subscriber)
	if !ok {
		t.Skip("the pool is not a Subscriber")
	}
	e.t = t
	sub, err := s.Subscribe(channel, e)
	require.NoError(t, err)
	t.Cleanup(sub.Close)
	return sub
}

// publish sends a message and returns how many subscribers it reached.
func publish(t *testing.T, env Env, channel string, payload any) int64 {
	t.Helper()
	n, err := env.Do("publish", channel, payload)
	require.NoError(t, err)
	return n.(int64)
}

// reaches fails the test unless a message reaches as many subscribers as it should.
func reaches(t *testing.T, env Env, channel string, payload any, should int64, all ...*recorder) {
	t.Helper()
	reached(t, publish(t, env, channel, payload), should, all...)
}

// reached is reaches for the answer n to a PUBLISH.
func reached(t *testing.T, n any, should int64, all ...*recorder) {
	t.Helper()
	if n != should {
		longAfter() // a connection ends before the pool says so
		for _, e := range all {
			e.undisturbed()
		}
	}
	require.Equal(t, should, n)
}

func subscribeNeedsItsArguments(t *testing.T, env Env) {
	p, e := env.Pool(many), &recorder{}
	sub := listen(t, p, key(0), e)
	s := p.(wire.Subscriber)
	_, err := s.Subscribe("", e)
	require.Error(t, err, "Subscribe must refuse an empty channel")
	_, err = s.Subscribe(key(0), nil)
	require.Error(t, err, "Subscribe must refuse a nil Listener")
	sub.Close()
	require.NoError(t, p.Close())
	_, err = s.Subscribe(key(0), e)
	require.ErrorIs(t, err, wire.ErrClosed)
}

// confirmedBeforeMessages publishes while the subscription is being made. All messages must
// follow Subscribed, and every message published after Subscribed must arrive.
func confirmedBeforeMessages(t *testing.T, env Env) {
	p := open(t, env, many)
	for i := range 10 {
		e, channel := &recorder{machine: env.Machine}, key(i)
		listen(t, p, channel, e)
		n := 0
		for ; e.count(subscribed) == 0; n++ {
			publish(t, env, channel, n)
		}
		first := n
		for ; n < first+10; n++ {
			reaches(t, env, channel, n, 1, e)
		}
		eventually(t, "the last message arrives", func() bool {
			e.undisturbed()
			got := e.messages()
			return len(got) > 0 && got[len(got)-1] == strconv.Itoa(n-1)
		})
		require.Equal(t, subscribed, e.begun()[0].what)
		got := e.messages()
		require.GreaterOrEqual(t, len(got), 10)
		for j, payload := range got {
			require.Equal(t, strconv.Itoa(n-len(got)+j), payload, "a message is missing or out of order")
		}
	}
}

// messagesKeepTheirOrder also shows that no message is lost or duplicated while the pool does
// other work.
func messagesKeepTheirOrder(t *testing.T, env Env) {
	p, e, in := open(t, env, many), &recorder{machine: env.Machine}, newInbox()
	listen(t, p, key(0), e)
	e.await(subscribed, 1)
	const n = 2000
	for i := range n {
		require.NoError(t, p.Send(wire.Request{Args: []any{"publish", key(0), i}, To: in}))
		if i%100 == 0 {
			p.CloseIdle()
		}
	}
	for _, got := range in.exactly(t, n) {
		require.NoError(t, got.Err)
		reached(t, got.Value, 1, e)
	}
	e.await(message, n)
	longAfter()
	for i, payload := range e.messages() {
		require.Equal(t, strconv.Itoa(i), payload)
	}
	require.Len(t, e.begun(), n+1)
}

func payloadsAreBinary(t *testing.T, env Env) {
	e := &recorder{machine: env.Machine}
	channel := "{wiretest}\x00\r\n \xff"
	listen(t, open(t, env, many), channel, e)
	e.await(subscribed, 1)
	want := []string{"", "\r\n", "\x00\xff", "*1\r\n$1\r\nx\r\n", string(make([]byte, 100_000))}
	for _, payload := range want {
		reaches(t, env, channel, payload, 1, e)
	}
	e.await(message, len(want))
	require.Equal(t, want, e.messages())
}

func reconnectIsAnnounced(t *testing.T, env Env) {
	needs(t, env.Kill != nil, env.Restart != nil)
	p, e := open(t, env, many), &recorder{}
	listen(t, p, key(0), e)
	hears := func(payload int) { // published once for each Subscribed: a slow machine may lose the subscription, and a message
		published := 0
		eventually(t, "a message arrives", func() bool {
			heard := slices.Contains(e.messages(), strconv.Itoa(payload))
			if n := e.count(subscribed); n > published && !heard {
				publish(t, env, key(0), payload)
				published = n
			}
			return heard
		})
	}
	for round := 1; round <= 3; round++ {
		e.await(subscribed, round)
		hears(round)
		failed := e.count(unsubscribed)
		env.Kill()
		e.await(unsubscribed, failed+2) // once for the loss, once for a failed attempt to reconnect
		env.Restart()
	}
	e.await(subscribed, 4)
	hears(4)
	require.Equal(t, []string{"1", "2", "3", "4"}, e.messages())
	up := false
	for _, c := range e.all() {
		switch c.what {
		case subscribed:
			require.False(t, up, "the pool called Subscribed twice without Unsubscribed between the calls")
			up = true
		case unsubscribed:
			require.Error(t, c.err)
			up = false
		case message:
			require.True(t, up, "the pool called Message while the channel was not subscribed")
		}
	}
}

func subscriptionWaitsForDeadNode(t *testing.T, env Env) {
	needs(t, env.Kill != nil, env.Restart != nil)
	p, e := open(t, env, many), &recorder{}
	env.Kill()
	prompt(t, env, "Subscribe to a dead node", func() { listen(t, p, key(0), e) })
	e.await(unsubscribed, 3)
	require.Zero(t, e.count(subscribed))
	env.Restart()
	e.await(subscribed, 1)
	require.Equal(t, int64(1), publish(t, env, key(0), "x"))
	e.await(message, 1)
}

func frozenNodeIsUnsubscribed(t *testing.T, env Env) {
	needs(t, env.Freeze != nil, env.Thaw != nil)
	p, e := open(t, env, many), &recorder{}
	sub := listen(t, p, key(0), e)
	e.await(subscribed, 1)
	env.Freeze()
	late := &recorder{}
	prompt(t, env, "Subscribe to a frozen node", func() { listen(t, p, key(1), late).Close() })
	late.closed.Store(true)
	e.await(unsubscribed, 1)
	prompt(t, env, "Close", sub.Close)
	e.closed.Store(true)
	env.Thaw()
	longAfter()
	require.Zero(t, late.count(subscribed))
}

func refusalIsFinal(t *testing.T, env Env) {
	needs(t, env.Answer != nil)
	p, e := open(t, env, many), &recorder{}
	env.Answer("subscribe", "NOPERM this user has no permissions to access one of the channels used as arguments")
	listen(t, p, key(0), e)
	e.await(refused, 1)
	sleep(10 * time.Second) // Answer applies to one command, so a second SUBSCRIBE would succeed
	require.Len(t, e.all(), 1)
	require.ErrorContains(t, e.all()[0].err, "NOPERM")
}

// nothingAfterClose closes subscriptions while messages arrive.
func nothingAfterClose(t *testing.T, env Env) {
	p := open(t, env, many)
	for i := range 50 {
		e := &recorder{machine: env.Machine}
		e.then = func(call) { pauseBriefly() }
		sub := listen(t, p, key(i), e)
		if i%5 > 0 {
			e.await(subscribed, 1)
		}
		in := newInbox()
		for range 50 {
			require.NoError(t, p.Send(wire.Request{Args: []any{"publish", key(i), "x"}, To: in}))
		}
		if i%2 == 1 && i%5 > 0 {
			e.await(message, i%7) // the other messages are still on their way
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				sub.Close()
				e.closed.Store(true)
				if e.inside.Load() != 0 {
					t.Error("Close returned while a method of the Listener ran")
				}
			})
		}
		wg.Wait()
		in.wait(t, 50)
	}
	longAfter()
}

// manySubscriptions: subscriptions are independent, and closing some does not affect the others.
func manySubscriptions(t *testing.T, env Env) {
	const channels, each = 20, 3
	p := open(t, env, many)
	recorders, subs := make([]*recorder, channels*each), make([]*wire.Subscription, channels*each)
	for i := range recorders {
		recorders[i] = &recorder{machine: env.Machine}
		subs[i] = listen(t, p, key(i%channels), recorders[i])
	}
	for _, e := range recorders {
		e.await(subscribed, 1)
	}
	for i := range channels {
		reaches(t, env, key(i), i, each, recorders...)
	}
	for i := range recorders {
		recorders[i].await(message, 1)
		require.Equal(t, []string{strconv.Itoa(i % channels)}, recorders[i].messages())
		if i < channels {
			subs[i].Close()
			recorders[i].closed.Store(true)
		}
	}
	for i := range channels {
		eventually(t, "the node notices that one subscription was closed", func() bool {
			n, err := env.Do("pubsub", "numsub", key(i))
			return err == nil && fmt.Sprint(n) == fmt.Sprintf("[%s %d]", key(i), each-1)
		})
		publish(t, env, key(i), "again")
	}
	for _, e := range recorders[channels:] {
		e.await(message, 2)
	}
	p.CloseIdle()
	pause()
	reaches(t, env, key(0), "CloseIdle leaves them", each-1, recorders[channels:]...)
	require.NoError(t, p.Close())
	if env.Connections != nil {
		within(t, soon, "no subscription is left", func() bool {
			n, err := env.Do("pubsub", "channels")
			return err == nil && fmt.Sprint(n) == "[]"
		})
	}
}

// subscriptionLeavesNothing subscribes and closes the subscription twice. After the second time there
// must not be more goroutines and connections than after the first.
func subscriptionLeavesNothing(t *testing.T, env Env) {
	p := open(t, env, many)
	greet(t, p)
	p.CloseIdle()
	longAfter()
	life := func() {
		e := &recorder{}
		sub := listen(t, p, key(0), e)
		e.await(subscribed, 1)
		sub.Close()
		longAfter()
	}
	life()
	before, connections := goroutines(), 0
	if env.Connections != nil {
		connections = env.Connections()
	}
	life()
	within(t, soon, "the goroutines of the closed subscription end", func() bool { return goroutines() <= before })
	if env.Connections != nil {
		within(t, soon, "the connections of the closed subscription end", func() bool { return env.Connections() <= connections })
	}
}

// pauseBriefly makes a method of a Listener take long enough to overlap with Close.
func pauseBriefly() { sleep(time.Millisecond) }
