package wiretest

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// release deletes a key that holds the value, as an unlock does.
var release = wire.NewScript(func() string {
	return `-- wiretest
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`
})

func releaseOf(key, value string) []any { return append(release.Append(nil, 1), key, value) }

func everyRequestHasOneReply(t *testing.T, env Env) {
	p, in := open(t, env, many), newInbox()
	const n = 2000
	for i := range n {
		require.NoError(t, p.Send(wire.Request{Args: []any{"echo", strconv.Itoa(i)}, To: in, Tag: i}))
	}
	for i, got := range inOrder(env.Slack == 0, in.exactly(t, n)) {
		require.Equal(t, i, got.tag, "the replies must arrive in the order of the requests")
		require.NoError(t, got.Err)
		require.Equal(t, wire.Answered, got.Fate)
		require.Equal(t, strconv.Itoa(i), got.Value)
	}
}

func encodingIsReadUntilSendReturns(t *testing.T, env Env) {
	p, in := open(t, env, many), newInbox()
	const n = 200
	var buffer []byte
	for i := range n {
		args := []any{"echo", strconv.Itoa(i)}
		buffer, _ = wire.AppendCommand(buffer[:0], args)
		require.NoError(t, p.Send(wire.Request{Args: args, RESP: buffer, To: in, Tag: i}))
		clear(buffer)
	}
	for i, got := range inOrder(env.Slack == 0, in.exactly(t, n)) {
		require.NoError(t, got.Err)
		require.Equal(t, strconv.Itoa(i), got.Value)
	}
}

func goroutinesShareAPool(t *testing.T, env Env) {
	p, in := open(t, env, many), newInbox()
	const senders, each = 16, 100
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				tag := s*each + i
				if err := p.Send(wire.Request{Args: []any{"echo", tag}, To: in, Tag: tag}); err != nil {
					t.Errorf("Send: %v", err)
				}
				if i%10 == 0 {
					p.CloseIdle()
				}
			}
		})
	}
	wg.Wait()
	next := make([]int, senders) // by goroutine: which of its requests the next reply must answer
	for _, got := range inOrder(env.Slack == 0, in.exactly(t, senders*each)) {
		require.NoError(t, got.Err)
		require.Equal(t, strconv.Itoa(got.tag), got.Value)
		s, i := got.tag/each, got.tag%each
		require.Equal(t, next[s], i, "goroutine %d got its replies out of order", s)
		next[s]++
	}
}

// receiverMaySend also shows that a reply no longer counts as outstanding while it is delivered:
// with a limit of one, its receiver may send the next request.
func receiverMaySend(t *testing.T, env Env) {
	p, in := open(t, env, 1), newInbox()
	const n = 200
	in.then = func(tag int, _ wire.Reply) {
		if tag == n-1 {
			return
		}
		if err := p.Send(wire.Request{Args: []any{"echo", "next"}, To: in, Tag: tag + 1}); err != nil {
			t.Errorf("Send %d: %v", tag+1, err)
		}
	}
	require.NoError(t, p.Send(wire.Request{Args: []any{"echo", "first"}, To: in}))
	in.exactly(t, n)
}

func missingKeyIsNil(t *testing.T, env Env) {
	p := open(t, env, many)
	greet(t, p)
	require.Nil(t, answer(t, p, "get", key(0)).Value)
	require.Equal(t, "OK", answer(t, p, "set", key(0), "a", "nx", "px", "60000").Value)
	require.Nil(t, answer(t, p, "set", key(0), "b", "nx", "px", "60000").Value)
	require.Equal(t, "a", answer(t, p, "get", key(0)).Value)
	require.Equal(t, int64(1), answer(t, p, "del", key(0)).Value)
}

func errorIsAnAnswer(t *testing.T, env Env) {
	p := open(t, env, many)
	greet(t, p)
	answer(t, p, "lpush", key(0), "element")
	r := ask(t, p, "get", key(0))
	requireAnswer(t, r, "WRONGTYPE")
	require.Nil(t, r.Value)
	answer(t, p, "ping")
}

// requireAnswer fails the test unless the node answered with an error that begins with prefix.
func requireAnswer(t *testing.T, r wire.Reply, prefix string) {
	t.Helper()
	var answer redis.Error
	require.ErrorAs(t, r.Err, &answer)
	require.Regexp(t, "^"+prefix, answer.Error())
	require.Equal(t, wire.Answered, r.Fate)
}

// errorIsNotRetried sends a SET that the node refuses, and then a DEL. If a client repeated the SET,
// the repeated one would follow the DEL and leave a key behind.
func errorIsNotRetried(t *testing.T, env Env) {
	needs(t, env.Answer != nil)
	p := open(t, env, many)
	greet(t, p)
	for i, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down",
		"NOREPLICAS Not enough good replicas to write.",
		"ERR max number of clients reached",
	} {
		env.Answer("set", text)
		in := newInbox()
		require.NoError(t, p.Send(wire.Request{Args: []any{"set", key(i), "v"}, To: in, Tag: 0}))
		require.NoError(t, p.Send(wire.Request{Args: []any{"del", key(i)}, To: in, Tag: 1}))
		got := in.exactly(t, 2)
		requireAnswer(t, got[0].Reply, text)
		require.Equal(t, []int{0, 1}, []int{got[0].tag, got[1].tag}, text)
		require.NoError(t, got[1].Err, text)
		require.Equal(t, int64(0), got[1].Value, text)
		longAfter()
		require.Equal(t, int64(0), exists(t, env, key(i)), "%s: the SET was sent again", text)
	}
}

func exists(t *testing.T, env Env, key string) any {
	t.Helper()
	n, err := env.Do("exists", key)
	require.NoError(t, err)
	return n
}

func unknownScriptIsAnAnswer(t *testing.T, env Env) {
	p := open(t, env, many)
	greet(t, p)
	// NewScript did not make this script, so no pool can have loaded it.
	stranger := []any{"evalsha", "0123456789012345678901234567890123456789", 1, key(0)}
	r := ask(t, p, stranger...)
	requireAnswer(t, r, "NOSCRIPT")
	require.True(t, wire.IsNoScript(r.Err))

	cmd := releaseOf(key(0), "a")
	answer(t, p, "set", key(0), "a")
	_, err := env.Do("script", "flush")
	require.NoError(t, err)
	if r = ask(t, p, cmd...); r.Err != nil || r.Conn != 0 { // a pool without a Conn may send the source by itself
		require.True(t, wire.IsNoScript(r.Err))
		r = answer(t, p, release.InFull(cmd)...)
	}
	require.Equal(t, int64(1), r.Value)
	require.Equal(t, int64(0), answer(t, p, cmd...).Value, "the node must know the script after EVAL")
}

// requestsAreExecutedInOrder sends a SET and its compare-and-delete back to back. A delete that
// overtakes its SET leaves a key behind.
func requestsAreExecutedInOrder(t *testing.T, env Env) {
	p, in := open(t, env, many), newInbox()
	if greet(t, p).Conn == 0 {
		t.Skip("the pool promises no order of execution")
	}
	const rounds, senders, each = 2, 4, 200
	answer(t, p, release.InFull(releaseOf(key(0), "v"))...) // needed if the pool does not load scripts
	for range rounds {
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := range each {
					k := key(s*each + i)
					errSet := p.Send(wire.Request{Args: []any{"set", k, "v", "nx", "px", "600000"}, To: in})
					errDel := p.Send(wire.Request{Args: releaseOf(k, "v"), To: in, Reserved: true})
					if errSet != nil || errDel != nil {
						t.Errorf("Send: %v, %v", errSet, errDel)
					}
				}
			})
		}
		wg.Wait()
		p.CloseIdle() // the next round begins on another connection
	}
	for _, got := range in.exactly(t, rounds*senders*each*2) {
		require.NoError(t, got.Err)
		require.NotZero(t, got.Conn)
	}
	left, err := env.Do("dbsize")
	require.NoError(t, err)
	require.Equal(t, int64(0), left, "keys left: a delete overtook its SET")
}

// repliesFollowExecution increments a counter on the node from many goroutines. The counts must
// arrive in ascending order.
func repliesFollowExecution(t *testing.T, env Env) {
	p, in := open(t, env, many), newInbox()
	if greet(t, p).Conn == 0 {
		t.Skip("the pool promises no order of execution")
	}
	const rounds, senders, each = 40, 8, 50
	for round := range rounds {
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				for range each {
					if err := p.Send(wire.Request{Args: []any{"incr", key(0)}, To: in}); err != nil {
						t.Errorf("Send: %v", err)
					}
				}
			})
		}
		wg.Wait()
		in.wait(t, (round+1)*senders*each)
	}
	for i, got := range in.exactly(t, rounds*senders*each) {
		require.NoError(t, got.Err)
		require.Equal(t, int64(i+1), got.Value)
	}
}

func frozenNodeHoldsNobodyUp(t *testing.T, env Env) {
	needs(t, env.Freeze != nil, env.Thaw != nil)
	const limit, tries = 300, 1000
	p, in := open(t, env, limit), newInbox()
	greet(t, p)
	env.Freeze()
	accepted := map[int]bool{}
	prompt(t, env, "1000 calls of Send to a frozen node", func() {
		for i := range tries {
			err := p.Send(wire.Request{Args: []any{"echo", i}, To: in, Tag: i})
			var full *wire.OutstandingError
			switch {
			case err == nil:
				accepted[i] = true
			case errors.As(err, &full):
				require.Equal(t, limit, full.Limit)
			default:
				t.Fatalf("Send: %v", err)
			}
		}
	})
	require.Len(t, accepted, limit)
	env.Thaw()
	for _, got := range in.exactly(t, limit) {
		require.True(t, accepted[got.tag], "the pool delivered a reply to a request that it had refused")
		require.NoError(t, got.Err)
		require.Equal(t, strconv.Itoa(got.tag), got.Value)
	}
	require.NoError(t, p.Send(wire.Request{Args: []any{"ping"}, To: in}), "Send must accept a request once all replies have arrived")
	in.exactly(t, limit+1)
}

func frozenNodeCostsNoGoroutines(t *testing.T, env Env) {
	needs(t, env.Freeze != nil, env.Thaw != nil)
	const limit = 500
	p, in := open(t, env, limit), newInbox()
	greet(t, p)
	env.Freeze()
	send := func() error { return p.Send(wire.Request{Args: []any{"echo", "x"}, To: in}) }
	require.NoError(t, send())
	require.NoError(t, send())
	pause()
	before := runtime.NumGoroutine()
	for range 10 * limit {
		_ = send()
	}
	pause()
	if grown := runtime.NumGoroutine() - before; grown > 5 {
		t.Errorf("the process has %d more goroutines after %d requests to a frozen node\n%s", grown, 10*limit, stacks())
	}
	env.Thaw()
	in.exactly(t, limit)
}

func reservedRequestsPassTheLimit(t *testing.T, env Env) {
	needs(t, env.Freeze != nil, env.Thaw != nil)
	const limit = 10
	p, in := open(t, env, limit), newInbox()
	greet(t, p)
	env.Freeze()
	for i := range limit {
		require.NoError(t, p.Send(wire.Request{Args: []any{"set", key(i), "v"}, To: in, Tag: i}))
	}
	var full *wire.OutstandingError
	require.ErrorAs(t, p.Send(wire.Request{Args: []any{"ping"}, To: in}), &full)
	for i := range limit {
		require.NoError(t, p.Send(wire.Request{Args: []any{"del", key(i)}, Reserved: true, To: in, Tag: limit + i}))
	}
	require.ErrorAs(t, p.Send(wire.Request{Args: []any{"ping"}, To: in}), &full)
	env.Thaw()
	for i, got := range inOrder(env.Slack == 0, in.exactly(t, 2*limit)) {
		require.Equal(t, i, got.tag)
		require.NoError(t, got.Err)
	}
}

// roomReturnsWithEachReply blocks the receiver after half of the replies. Delivered replies must
// not count as outstanding, although more replies follow.
func roomReturnsWithEachReply(t *testing.T, env Env) {
	needs(t, env.Freeze != nil, env.Thaw != nil)
	const limit = 100
	p, in := open(t, env, limit), newInbox()
	greet(t, p)
	half, hold := make(chan struct{}), make(chan struct{})
	in.then = func(tag int, _ wire.Reply) {
		if tag == limit/2 {
			close(half)
			<-hold
		}
	}
	env.Freeze()
	for i := range limit {
		require.NoError(t, p.Send(wire.Request{Args: []any{"ping"}, To: in, Tag: i}))
	}
	env.Thaw()
	<-half
	err := p.Send(wire.Request{Args: []any{"ping"}, To: in, Tag: limit})
	close(hold)
	require.NoError(t, err, "Send must accept a request once half of the replies are delivered")
	in.exactly(t, limit+1)
}

func deadNodeExecutesNothing(t *testing.T, env Env) {
	needs(t, env.Kill != nil, env.Restart != nil)
	const n = 100
	p, in := open(t, env, many), newInbox()
	env.Kill()
	prompt(t, env, "100 calls of Send to a dead node", func() {
		for i := range n {
			require.NoError(t, p.Send(wire.Request{Args: []any{"incr", key(0)}, To: in, Tag: i}))
		}
	})
	for i, got := range inOrder(false, in.exactly(t, n)) {
		require.Equal(t, i, got.tag)
		require.Error(t, got.Err)
		require.Nil(t, got.Value)
		require.Nil(t, got.Server)
		want := wire.NotSent
		if got.Conn == 0 && got.Fate == wire.Unknown {
			want = wire.Unknown // a pool that routes may not know whether a request was sent
		}
		require.Equal(t, want, got.Fate, "%v", got.Err)
	}
	env.Restart()
	eventually(t, "the pool finds the node again", func() bool { return ask(t, p, "ping").Err == nil })
	longAfter()
	require.Equal(t, int64(0), exists(t, env, key(0)), "the restarted node executed a request from the time when it was dead")
}

func lostReplyIsUnknown(t *testing.T, env Env) {
	needs(t, env.LoseReply != nil)
	p := open(t, env, many)
	for i := range 5 {
		answer(t, p, "ping")
		env.LoseReply("incr")
		r := ask(t, p, "incr", key(i))
		require.Error(t, r.Err)
		require.Equal(t, wire.Unknown, r.Fate)
		require.Nil(t, r.Value)
		require.Nil(t, r.Server)
		answer(t, p, "ping")
	}
	longAfter()
	for i := range 5 {
		require.Equal(t, 1, counter(t, env, key(i)), "how often the node executed a request whose reply was lost")
	}
}

// noRequestIsExecutedTwice increments many counters while it cuts connections under load. No counter may
// exceed the number of requests that were sent for it.
func noRequestIsExecutedTwice(t *testing.T, env Env) {
	needs(t, env.LoseReply != nil)
	p, in := open(t, env, many), newInbox()
	const n, cuts = 1000, 10
	in.then = func(tag int, _ wire.Reply) {
		if tag%(n/cuts) == 0 {
			env.LoseReply("incr")
		}
	}
	for i := range n {
		require.NoError(t, p.Send(wire.Request{Args: []any{"incr", key(i)}, To: in, Tag: i}))
		if i%20 == 0 {
			runtime.Gosched()
		}
	}
	in.wait(t, n)
	for lost := 0; lost < 3; { // until at least 3 requests were in flight when a connection was cut
		batch := newInbox()
		env.LoseReply("incr")
		for i := range 50 {
			require.NoError(t, p.Send(wire.Request{Args: []any{"incr", key(n + i)}, To: batch, Tag: i}))
		}
		for _, got := range batch.exactly(t, 50) {
			if got.Fate == wire.Unknown {
				lost++
			}
			in.Receive(n+got.tag, got.Reply)
		}
	}
	longAfter()
	in.mu.Lock()
	defer in.mu.Unlock()
	sent, answered := map[int]int{}, map[int]int{}
	for _, got := range in.arrived {
		sent[got.tag]++
		if got.Fate == wire.Answered {
			require.NoError(t, got.Err)
			answered[got.tag]++
		}
	}
	for tag := range sent {
		count := counter(t, env, key(tag))
		require.LessOrEqual(t, count, sent[tag], "the node executed request %d more often than the check sent it", tag)
		require.GreaterOrEqual(t, count, answered[tag], "the node answered request %d without executing it", tag)
	}
}

func counter(t *testing.T, env Env, key string) int {
	t.Helper()
	text, err := env.Do("get", key)
	if errors.Is(err, redis.Nil) {
		return 0
	}
	require.NoError(t, err)
	n, err := strconv.Atoi(fmt.Sprint(text))
	require.NoError(t, err)
	return n
}

func restartRaisesConn(t *testing.T, env Env) {
	needs(t, env.Kill != nil, env.Restart != nil)
	p := open(t, env, many)
	before := greet(t, p).Conn
	if before == 0 {
		t.Skip("the pool does not tell connections apart")
	}
	for range 3 {
		env.Kill()
		env.Restart()
		conn := newest(t, p, before)
		require.Greater(t, conn, before)
		require.GreaterOrEqual(t, answer(t, p, "ping").Conn, conn)
		before = conn
	}
}

// newest sends requests until the restarted node answers, and returns that reply's Conn. The
// first request may fail because it meets the end of the old connection.
func newest(t *testing.T, p wire.Pool, before uint64) (conn uint64) {
	t.Helper()
	eventually(t, "the restarted node answers", func() bool {
		r := ask(t, p, "ping")
		require.GreaterOrEqual(t, r.Conn, before)
		conn = r.Conn
		return r.Err == nil
	})
	return conn
}

// restartWhileIdleRaisesConn: connection numbers keep rising after all connections have ended,
// for other pools of the node as well.
func restartWhileIdleRaisesConn(t *testing.T, env Env) {
	needs(t, env.Kill != nil, env.Restart != nil)
	first, second := open(t, env, many), open(t, env, many)
	before := greet(t, first).Conn
	if before == 0 {
		t.Skip("the pool does not tell connections apart")
	}
	first.CloseIdle()
	pause()
	env.Kill()
	env.Restart()
	require.Greater(t, newest(t, first, before), before)
	require.Greater(t, newest(t, second, before), before)
}

// serverStays: a pool need not know which process answers, but it must not report two RunIDs for
// one process.
func serverStays(t *testing.T, env Env) {
	p, q := open(t, env, many), open(t, env, many)
	s := greet(t, p).Server
	if s == nil {
		t.Skip("the pool does not know which server answers")
	}
	require.NotEmpty(t, s.RunID)
	require.False(t, s.At.After(time.Now()))
	require.GreaterOrEqual(t, s.Uptime, time.Duration(0))
	require.Zero(t, s.Uptime%time.Second, "a server tells its uptime in whole seconds")
	require.Equal(t, s.Uptime+time.Minute, s.Age(s.At.Add(time.Minute)))
	value := *s
	for i := range 100 {
		if r := answer(t, p, "echo", i); r.Server != s && r.Server != nil {
			require.Equal(t, s.RunID, r.Server.RunID)
			require.True(t, r.Server.At.After(s.At), "another pointer must come from a later answer to INFO")
		}
	}
	if r := answer(t, q, "ping"); r.Server != nil {
		require.Equal(t, s.RunID, r.Server.RunID, "another pool of the node reports another RunID")
	}
	require.Equal(t, value, *s, "the pool changed a Server that it had returned")
}

func restartChangesServer(t *testing.T, env Env) {
	needs(t, env.Kill != nil, env.Restart != nil)
	p := open(t, env, many)
	s := greet(t, p).Server
	if s == nil {
		t.Skip("the pool does not know which server answers")
	}
	seen := map[string]bool{s.RunID: true}
	for range 3 {
		down := time.Now()
		env.Kill()
		env.Restart()
		var sent time.Time
		eventually(t, "the restarted node answers", func() bool {
			sent = time.Now()
			r := ask(t, p, "ping")
			s = r.Server
			require.True(t, r.Fate == wire.Answered || s == nil, "a reply has a Server, but no server answered")
			return r.Err == nil
		})
		if s == nil {
			continue // the pool does not know the new process, or does not know it yet
		}
		require.False(t, seen[s.RunID], "the pool reports the RunID of a process that has ended")
		require.LessOrEqual(t, s.Age(sent), sent.Sub(down)+time.Second)
		seen[s.RunID] = true
	}
}

func closeAnswersWhatWasAccepted(t *testing.T, env Env) {
	p, in := open(t, env, many), newInbox()
	const n = 500
	for i := range n {
		require.NoError(t, p.Send(wire.Request{Args: []any{"echo", i}, To: in, Tag: i}))
	}
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Send(wire.Request{Args: []any{"ping"}, To: in}), wire.ErrClosed)
	require.ErrorIs(t, p.Send(wire.Request{Args: []any{"ping"}, To: in, Reserved: true}), wire.ErrClosed)
	require.NoError(t, p.Close())
	p.CloseIdle()
	for i, got := range inOrder(env.Slack == 0, in.exactly(t, n)) {
		require.Equal(t, i, got.tag)
		require.NoError(t, got.Err)
		require.Equal(t, strconv.Itoa(i), got.Value)
	}
	greet(t, open(t, env, many))
}

func closeDoesNotWait(t *testing.T, env Env) {
	needs(t, env.Freeze != nil, env.Thaw != nil)
	p, in := open(t, env, many), newInbox()
	greet(t, p)
	env.Freeze()
	for i := range 10 {
		require.NoError(t, p.Send(wire.Request{Args: []any{"echo", i}, To: in, Tag: i}))
	}
	prompt(t, env, "CloseIdle, Close and Send", func() {
		p.CloseIdle()
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Send(wire.Request{Args: []any{"ping"}, To: in}), wire.ErrClosed)
	})
	env.Thaw()
	for _, got := range in.exactly(t, 10) {
		require.NoError(t, got.Err)
	}
}

// closeRacesWithSend: whether Send or Close comes first, accepted requests are answered and no
// connection stays open.
func closeRacesWithSend(t *testing.T, env Env) {
	p := env.Pool(many)
	ordered := answer(t, p, "ping").Conn != 0
	require.NoError(t, p.Close())
	for range 100 {
		p, in := env.Pool(many), newInbox()
		var wg sync.WaitGroup
		var accepted int
		wg.Go(func() {
			for accepted < 20 && p.Send(wire.Request{Args: []any{"ping"}, To: in}) == nil {
				accepted++
				runtime.Gosched()
			}
		})
		wg.Go(func() { _ = p.Close() })
		wg.Wait()
		in.wait(t, accepted)
		if env.Connections != nil && ordered {
			within(t, soon, "no connection is left", func() bool { return env.Connections() == 0 })
		}
	}
}

func closeIdleEndsConnections(t *testing.T, env Env) {
	p := open(t, env, many)
	greet(t, p)
	for i := range 3 {
		r := answer(t, p, "echo", i)
		require.Equal(t, strconv.Itoa(i), r.Value)
		p.CloseIdle()
		if env.Connections != nil && r.Conn != 0 {
			within(t, soon, "no connection is left", func() bool { return env.Connections() == 0 })
		}
	}
}

// closeLeavesNoGoroutine opens and closes a pool twice. After the second time there must not be more
// goroutines than after the first.
func closeLeavesNoGoroutine(t *testing.T, env Env) {
	life := func() {
		p := env.Pool(many)
		answer(t, p, "ping")
		require.NoError(t, p.Close())
		longAfter()
	}
	life()
	before := goroutines()
	life()
	within(t, soon, "the goroutines of the closed pool end", func() bool { return goroutines() <= before })
}

func stringNamesTheNode(t *testing.T, env Env) {
	p := open(t, env, many)
	require.NotEmpty(t, p.String())
	require.NoError(t, p.Close())
	require.NotEmpty(t, p.String())
}
