package main

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

func TestEveryContenderRunsWithItsOptions(t *testing.T) {
	addrs := startNodes(t, nodes)
	for _, c := range everyContender() {
		lib, err := c.start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		require.NoError(t, lib.Close())
	}
}

// with returns a copy of c that calls change on its library after opening it.
func (c contender) with(change func(library)) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) {
		lib, err := open(addrs, ttl)
		if err == nil {
			change(lib)
		}
		return lib, err
	}
	return c
}

// on returns a copy of c whose library uses only the first n of the nodes that the control looks at.
func (c contender) on(n int) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) { return open(addrs[:n], ttl) }
	return c
}

// longer returns a copy of c whose locks have a TTL longer by d than the TTL that the control expects.
func (c contender) longer(d time.Duration) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) { return open(addrs, ttl+d) }
	return c
}

// plainly returns the oursLibrary inside a variant, or lib if lib is an oursLibrary.
func plainly(lib library) *oursLibrary {
	switch l := lib.(type) {
	case *watchedLibrary:
		return l.oursLibrary
	case *multiLibrary:
		return l.oursLibrary
	case *atRandomLibrary:
		return l.oursLibrary
	}
	return lib.(*oursLibrary)
}

// mislabelled returns contenders that each differ in one thing from what their name promises. A key of the map
// says which contender it is and what differs, and after ": " the error that the control must return.
func mislabelled() map[string]contender {
	list := make(map[string]contender)
	add := func(c contender, what, says string) { list[c.name+", "+what+": "+says] = c }
	rivalWith := func(name string, options ...rival.Option) contender {
		return named(name)[0].with(func(lib library) {
			l, ok := lib.(*redsyncLibrary)
			if !ok {
				l = lib.(*inTurnLibrary).redsyncLibrary
			}
			l.options = append(slices.Clone(l.options), options...)
		})
	}
	oursWith := func(name string, options ...redsync.Option) contender {
		return named(name)[0].with(func(lib library) {
			l := plainly(lib)
			l.rs = l.rs.With(options...)
		})
	}
	for _, name := range []string{defaults, failFast, onRueidis, inTurn} {
		add(rivalWith(name, rival.WithExpiry(8*time.Second)), "expiry", "its lock.expiry is ")
		add(rivalWith(name, rival.WithFailFast(name == defaults || name == inTurn)), "failFast", "its lock.failFast is ")
		add(rivalWith(name, rival.WithTries(1)), "tries", "its lock.tries is 1, want ")
		add(rivalWith(name, rival.WithTimeoutFactor(0.5)), "timeout", "its lock.timeoutFactor is 0.5, want ")
		add(rivalWith(name, rival.WithDriftFactor(0.5)), "drift", "its lock.driftFactor is 0.5, want ")
		add(rivalWith(name, rival.WithRetryDelay(time.Second)), "delay", "its lock.delayFunc is ")
		add(rivalWith(name, rival.WithShufflePools(true)), "shuffled", "its lock.shuffle is true, want false")
		add(named(name)[0].on(3), "3 nodes", "its lock.quorum is 2, want 3")
		add(named(name)[0].on(4), "4 nodes", "its lock.pools is 4, want 5")
	}
	for _, c := range slices.Concat(named(ours), variants) {
		add(oursWith(c.name, redsync.WithExpiry(8*time.Second)), "expiry", "its set.options.bases.expiry is ")
		add(oursWith(c.name, redsync.WithFailFast(false)), "failFast", "its set.options.waitAll is true, want false")
		add(oursWith(c.name, redsync.WithTries(1)), "tries", "its set.options.tries is 1, want ")
		add(oursWith(c.name, redsync.WithTimeoutFactor(0.5)), "timeout", "its set.options.bases.timeoutFactor is 0.5, want ")
		add(oursWith(c.name, redsync.WithDriftFactor(0.5)), "drift", "its set.options.bases.driftFactor is 0.5, want ")
		add(oursWith(c.name, redsync.WithRetryDelay(time.Second)), "delay", "its set.options.retryDelay is ")
		add(c.on(1), "1 node", "its core.keeper.Set.Nodes is 1, want 5")
		add(c.on(4), "4 nodes", "its core.keeper.Set.Nodes is 4, want 5")
	}
	for name, option := range map[string]string{
		oursApart: "noHandOver", oursFair: "fair", oursFenced: "fencing", oursWatched: "watchdog", oursShared: "shared",
	} {
		c := named(name)[0]
		c.open = openOursWith()
		add(c, "plain", "its set.options."+option+" is false, want true")
	}
	hasty := named(oursPatient)[0]
	hasty.open = openOursWith()
	add(hasty, "plain", "its set.options.bases.nodeTimeout is ")
	for name, option := range map[string]redsync.Option{
		oursPermits: redsync.WithPermits(fewPermits + 1), oursPermitsFair: redsync.WithPermits(fewPermits + 1),
		oursManyPermits: redsync.WithPermits(fewPermits),
	} {
		add(oursWith(name, option), "another number", "its set.options.permits is ")
	}
	unfair := named(oursPermitsFair)[0]
	unfair.open = openOursWith(redsync.WithPermits(fewPermits))
	add(unfair, "plain", "its set.options.fair is false, want true")
	handed := named(oursAtRandom)[0]
	handed.open = openAtRandom(fewPermits)
	add(handed, "plain", "its set.options.noHandOver is false, want true")
	elsewhere := named(oursPermits)[0]
	elsewhere.oneOf = keysOfPermits(0)
	add(elsewhere, "without keys", "0 nodes kept its locks, want 5")
	several := named(oursTwo)[0]
	several.oneOf = oneOfNames(2)
	add(several, "said to have one of two names", "a node has 2 of its keys, want 1")
	fair := named(oursTwoFair)[0]
	fair.open = openOursOn(2)
	add(fair, "plain", "its set.options.fair is false, want true")
	for _, name := range []string{oursTwo, oursTwoFair, oursEight} {
		add(named(name)[0].with(func(lib library) { lib.(*multiLibrary).names++ }), "more", "its names is ")
		add(named(name)[0].with(func(lib library) { lib.(*multiLibrary).names = 1 }), "one name", "its set.options.several is false, want true")
	}
	fewer := named(oursTwo)[0]
	fewer.names, fewer.like = 3, likeNothing
	add(fewer, "said to have three", "a node has its key 1, but not key 3")
	add(named(floor)[0].on(3), "3 nodes", "3 nodes kept its locks, want 5")
	many := named(floor)[0]
	many.single = true
	add(many, "said to be single", "5 nodes kept its locks, want 1")
	for _, name := range []string{oneNode, floor} {
		add(named(name)[0].longer(-patientExpiry*4/10), "TTL", "a node keeps its lock for ")
		add(named(name)[0].longer(patientExpiry/10), "long TTL", "a node keeps its lock for ")
	}
	add(named(oneKey)[0].longer(-patientExpiry*4/10), "TTL", "its lock.validity is ")
	for _, name := range []string{ours, defaults, failFast, oneNode} {
		add(named(name)[0].with(func(lib library) {
			cs := lib.(interface{ onGoRedis() clients }).onGoRedis()
			addr := cs[0].Options().Addr
			_ = cs[0].Close()
			cs[0] = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 3})
		}), "pool", "its options.PoolSize is 3, want ")
	}
	return list
}

func TestAContenderThatIsNotWhatItsNameSaysDoesNotStart(t *testing.T) {
	addrs := startNodes(t, nodes)
	for what, c := range mislabelled() {
		_, says, _ := strings.Cut(what, ": ")
		_, err := c.start(t.Context(), addrs, patientExpiry)
		require.ErrorContains(t, err, c.name+": "+says, what)
	}
}

func TestDifferNamesTheSetting(t *testing.T) {
	type inner struct{ b string }
	type outer struct {
		a    *inner
		f    func()
		list []int
		any  any
		name string
	}
	one, other := func() {}, func() { panic("another") }
	got := outer{a: &inner{"x"}, f: one, list: []int{1}, any: 1, name: "mine"}
	same := outer{a: &inner{"x"}, f: one, list: []int{2}, any: "2", name: "yours"}
	require.NoError(t, differ("it", reflect.ValueOf(got), reflect.ValueOf(same)))
	for says, change := range map[string]func(*outer){
		"its it.a.b is x, want y":        func(o *outer) { o.a = &inner{"y"} },
		"its it.a is false, want true":   func(o *outer) { o.a = nil },
		"its it.f is ":                   func(o *outer) { o.f = other },
		"its it.list is 1, want 2":       func(o *outer) { o.list = []int{1, 2} },
		"its it.any is false, want true": func(o *outer) { o.any = nil },
	} {
		want := same
		change(&want)
		require.ErrorContains(t, differ("it", reflect.ValueOf(got), reflect.ValueOf(want)), says)
	}
	v := reflect.ValueOf(&got)
	require.ErrorContains(t, differ("it", v, reflect.ValueOf(1)), "its it is ")
	require.ErrorContains(t, differPart(v, v, "none"), "its none is ")
	require.ErrorContains(t, differPart(v, v, "list", "none"), "want a struct with none")
}

func TestCheckTTLAllowsForTheTimeThatHasPassed(t *testing.T) {
	const ttl = 40 * time.Second
	require.NoError(t, checkTTL(ttl, 0, ttl))
	require.NoError(t, checkTTL(ttl-10*time.Second, 10*time.Second, ttl))
	require.NoError(t, checkTTL(ttl-2*time.Second, 0, ttl))
	require.NoError(t, checkTTL(ttl+time.Second, 0, ttl))
	require.Error(t, checkTTL(ttl-2*time.Second-1, 0, ttl))
	require.Error(t, checkTTL(ttl+time.Second+1, 0, ttl))
	require.Error(t, checkTTL(-1, 0, ttl), "go-redis returns -1 for a key without a TTL")
	require.NoError(t, checkTTL(3600*time.Millisecond, 0, 4*time.Second))
	require.Error(t, checkTTL(3599*time.Millisecond, 0, 4*time.Second))
}

// TestFailFastReturnsWhileANodeIsFrozen shows that WithFailFast takes effect. Lock without the option is called first
// and waits for the frozen node. Meanwhile Lock with the option must return.
func TestFailFastReturnsWhileANodeIsFrozen(t *testing.T) {
	servers := realredis.Start(t, nodes)
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	open := func(name string) library {
		lib, err := named(name)[0].start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		t.Cleanup(func() { _ = lib.Close() })
		return lib
	}
	slow, fast := open(defaults), []library{open(failFast), open(onRueidis), open(ours)}
	servers[0].Freeze()
	waited := make(chan error, 1)
	go func() {
		_, err := slow.Lock(t.Context(), freshKey())
		waited <- err
	}()
	for _, lib := range fast {
		_, err := lib.Lock(t.Context(), freshKey())
		require.NoError(t, err)
	}
	select {
	case <-waited:
		t.Error("the Lock that should wait for the frozen node has returned before the node was thawed")
	default:
	}
	servers[0].Thaw()
	require.NoError(t, <-waited)
}

// TestVariantsShowTheirOption looks at what the option of each variant does on the nodes.
func TestVariantsShowTheirOption(t *testing.T) {
	addrs := startNodes(t, nodes)
	look := dial(addrs)
	t.Cleanup(func() { require.NoError(t, look.Close()) })
	open := func(name string) *redsync.Redsync {
		lib, err := named(name)[0].start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lib.Close()) })
		return plainly(lib).rs
	}

	// With WithFair even the first attempt runs a script, which looks at the queue. Without WithFair the first
	// attempt is a SET.
	require.Zero(t, scriptsOfALock(t, look, open(ours)))
	require.Positive(t, scriptsOfALock(t, look, open(oursFair)))

	m := open(oursFenced).NewMutex(freshKey())
	require.NoError(t, m.LockContext(t.Context()))
	require.Positive(t, m.Fence())
	require.NoError(t, unlock(t.Context(), m))

	// Two readers can hold a name at the same time. Two plain locks cannot.
	require.True(t, holdsBeside(t, open(oursShared)))
	require.False(t, holdsBeside(t, open(ours)))

	// As many locks hold the name at the same time as it has permits, and no more. Each has a key of its own.
	require.Equal(t, fewPermits, heldBeside(t, look, open(oursPermits)))
	require.Equal(t, manyPermits, heldBeside(t, look, open(oursManyPermits)))
	require.Zero(t, queuesOfALock(t, look, open(oursPermits)))
	require.Positive(t, queuesOfALock(t, look, open(oursPermitsFair)))

	// With WithHandOver(false), Unlock releases the lock on the nodes even if the same process waits for
	// it. By default Unlock hands the lock to that waiter, but only while the lock is young. On a slow machine
	// a hand-over may take more than one try.
	plain, apart := open(ours), open(oursApart)
	handed := false
	for range 50 {
		handed = handed || handsOver(t, look, plain)
		if handed {
			break
		}
	}
	require.True(t, handed)
	require.False(t, handsOver(t, look, apart))
}

// holdsBeside reports whether two locks of rs can hold a name at the same time.
func holdsBeside(t *testing.T, rs *redsync.Redsync) bool {
	t.Helper()
	key := freshKey()
	first, second := rs.NewMutex(key, redsync.WithFailFast(false)), rs.NewMutex(key)
	require.NoError(t, first.LockContext(t.Context()))
	err := second.TryLockContext(t.Context())
	require.NoError(t, unlock(t.Context(), first))
	if err == nil {
		require.NoError(t, unlock(t.Context(), second))
	}
	return err == nil
}

// heldBeside returns how many locks of rs can hold a name at the same time. It fails t unless each lock has a key of
// its own on the first node.
func heldBeside(t *testing.T, look clients, rs *redsync.Redsync) int {
	t.Helper()
	key := freshKey()
	var locks []*redsync.Mutex
	for {
		m := rs.NewMutex(key, redsync.WithFailFast(false))
		if err := m.TryLockContext(t.Context()); err != nil {
			require.ErrorAs(t, err, new(*redsync.ErrTaken))
			break
		}
		locks = append(locks, m)
	}
	keys, err := look[0].Keys(t.Context(), "{"+key+"}:slot:?*").Result()
	require.NoError(t, err)
	require.Len(t, keys, len(locks))
	for _, m := range locks {
		require.NoError(t, unlock(t.Context(), m))
	}
	return len(locks)
}

// queuesOfALock returns how often the first node has executed TIME for a Lock of a free name. A script calls TIME only
// when it looks at the queue.
func queuesOfALock(t *testing.T, look clients, rs *redsync.Redsync) int64 {
	t.Helper()
	return callsOfALock(t, look, rs, "time")
}

// scriptsOfALock returns how many scripts the first node has run for a Lock.
func scriptsOfALock(t *testing.T, look clients, rs *redsync.Redsync) int64 {
	t.Helper()
	return callsOfALock(t, look, rs, "evalsha", "eval")
}

// callsOfALock returns how often the first node has executed any of these commands for a Lock of a free name.
func callsOfALock(t *testing.T, look clients, rs *redsync.Redsync, commands ...string) int64 {
	t.Helper()
	count := func() (n int64) {
		text, err := look[0].Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		calls := parseCommandStats(text)
		for _, name := range commands {
			n += calls[name]
		}
		return n
	}
	before := count()
	m := rs.NewMutex(freshKey(), redsync.WithFailFast(false)) // Lock returns once every node has answered
	require.NoError(t, m.LockContext(t.Context()))
	after := count()
	require.NoError(t, unlock(t.Context(), m))
	return after - before
}

// handsOver reports whether a waiter of the same process gets the lock with the value that the first holder had.
func handsOver(t *testing.T, look clients, rs *redsync.Redsync) bool {
	t.Helper()
	key := freshKey()
	first, second := rs.NewMutex(key, redsync.WithFailFast(false)), rs.NewMutex(key)
	require.NoError(t, first.LockContext(t.Context()))
	before := stored(t, look[0], key)
	done := make(chan error, 1)
	go func() { done <- second.LockContext(t.Context()) }()
	require.Eventually(t, func() bool { // the waiter has a place in the queue
		n, err := look[0].Exists(t.Context(), "{"+key+"}:queue").Result()
		return err == nil && n == 1
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, unlock(t.Context(), first))
	require.NoError(t, <-done)
	after := stored(t, look[0], key)
	require.NoError(t, unlock(t.Context(), second))
	return before == after
}

func stored(t *testing.T, node *redis.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	value, err := node.Get(ctx, key).Result()
	require.NoError(t, err)
	return value
}
