package wiretest

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

const (
	// patience is how long a check waits for something that must happen, because a pool may need
	// several of its timeouts. Only a failing check waits that long.
	patience = time.Minute

	// soon is how long a check waits for resources to be released. It is shorter than any idle
	// time after which a pool would release them anyway.
	soon = 10 * time.Second

	// stoodStill is how long the machine must stand still for a subscription to be lost.
	stoodStill = 200 * time.Millisecond

	// many is a limit of outstanding requests that no check reaches.
	many = 4096
)

// An inbox receives replies and remembers them in the order of arrival.
type inbox struct {
	// then, if set, is called with every reply before it is remembered.
	then func(tag int, r wire.Reply)

	mu      sync.Mutex
	arrived []arrival
	news    chan struct{} // holds a token when arrived has grown
}

type arrival struct {
	tag int
	wire.Reply
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

func (b *inbox) Receive(tag int, r wire.Reply) {
	if b.then != nil {
		b.then(tag, r)
	}
	b.mu.Lock()
	b.arrived = append(b.arrived, arrival{tag, r})
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *inbox) all() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]arrival(nil), b.arrived...)
}

// wait waits for n replies, and returns all that have arrived.
func (b *inbox) wait(t *testing.T, n int) []arrival {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		if got := b.all(); len(got) >= n {
			return got
		}
		select {
		case <-b.news:
		case <-limit.C:
			t.Fatalf("%d replies after %v, want %d", len(b.all()), patience, n)
		}
	}
}

// exactly waits for n replies, then a moment longer, and fails if more arrive.
func (b *inbox) exactly(t *testing.T, n int) []arrival {
	t.Helper()
	b.wait(t, n)
	pause()
	got := b.all()
	require.Len(t, got, n, "replies")
	return got
}

// inOrder returns replies in the order of arrival. Replies without a Conn may overtake one that takes long: unless answers are
// prompt, inOrder returns these by tag.
func inOrder(prompt bool, got []arrival) []arrival {
	if !prompt && !slices.ContainsFunc(got, func(a arrival) bool { return a.Conn != 0 }) {
		slices.SortStableFunc(got, func(a, b arrival) int { return cmp.Compare(a.tag, b.tag) })
	}
	return got
}

// ask sends one request and waits for its reply.
func ask(t *testing.T, p wire.Pool, args ...any) wire.Reply {
	t.Helper()
	in := newInbox()
	require.NoError(t, p.Send(wire.Request{Args: args, To: in}))
	return in.wait(t, 1)[0].Reply
}

// answer calls ask, and fails the test if the node does not answer or answers with an error.
func answer(t *testing.T, p wire.Pool, args ...any) wire.Reply {
	t.Helper()
	r := ask(t, p, args...)
	require.NoError(t, r.Err)
	require.Equal(t, wire.Answered, r.Fate)
	return r
}

// greet returns the reply to the first PING of p. Until the node has greeted p, it asks again: on a machine that is short of
// processors, a greeting may take longer than a pool waits for one.
func greet(t *testing.T, p wire.Pool) (r wire.Reply) {
	t.Helper()
	eventually(t, "the node greets the pool", func() bool {
		r = ask(t, p, "ping")
		return r.Fate != wire.NotSent
	})
	require.NoError(t, r.Err)
	require.Equal(t, wire.Answered, r.Fate)
	return r
}

// open returns a Pool that the end of the test closes.
func open(t *testing.T, env Env, limit int) wire.Pool {
	t.Helper()
	p := env.Pool(limit)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// eventually polls until ok holds. It fails the test if that takes longer than patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, patience, what, ok)
}

// within polls until ok holds. It fails the test if that takes longer than limit.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v\n%s", what, limit, stacks())
		}
	}
}

// pause gives all other goroutines time to run.
func pause() { sleep(20 * time.Millisecond) }

// longAfter waits long enough for a client to repeat a failed request, should it do so.
func longAfter() { sleep(200 * time.Millisecond) }

func sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // outside a bubble nothing signals that all goroutines wait
}

// goroutines counts goroutines while the world is stopped. The count of runtime.NumGoroutine may
// be one too low at times.
func goroutines() int { return bytes.Count(stacks(), []byte("\n\ngoroutine ")) + 1 }

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// prompt runs f and fails if f took longer than Slack.
func prompt(t *testing.T, env Env, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > env.Slack {
		t.Errorf("%s took %v, want %v at most", what, took, env.Slack)
	}
}

func needs(t *testing.T, functions ...bool) {
	t.Helper()
	for _, there := range functions {
		if !there {
			t.Skip("this node cannot do what the check needs")
		}
	}
}

func key(i int) string { return fmt.Sprintf("wiretest:%d", i) }
