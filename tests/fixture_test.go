package redsync_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file has the helpers that more than one test file uses.

// Nodes and processes.

// A user is a test in virtual time and the Redsync that it uses.
type user struct {
	*testing.T
	*redsync.Redsync
}

// A kit is five nodes of redsynctest and a Redsync on them. A test that needs no more than redsynctest offers uses
// a kit.
type kit struct {
	user
	nodes *redsynctest.Nodes
}

// onKit runs f in a bubble.
func onKit(t *testing.T, f func(k kit)) {
	t.Helper()
	besideOthers(t)
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		f(kit{user{t, nodes.Redsync()}, nodes})
	})
}

// records meets the nodes, and returns a Redsync with a recorder of the events of its locks.
func (u user) records() (*redsync.Redsync, *redsynctest.Recorder) {
	u.meet()
	time.Sleep(ms)
	r := &redsynctest.Recorder{}
	return u.With(recordsTo(r)), r
}

// observingKit is onKit with a recorder of the events of the kit's locks. The Redsync has met all nodes.
func observingKit(t *testing.T, f func(k kit, r *redsynctest.Recorder)) {
	t.Helper()
	onKit(t, func(k kit) {
		rs, r := k.records()
		k.Redsync = rs
		f(k, r)
	})
}

// A field is five embedded nodes and a Redsync on them, for tests that look into the nodes, or make single commands
// fail.
type field struct {
	user
	nodes embedded.Nodes
}

// play runs f in a bubble. No goroutine may be left running at its end.
func play(t *testing.T, f func(f field)) {
	t.Helper()
	besideOthers(t)
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		t.Cleanup(func() {
			nodes.Close()
			time.Sleep(minute) // goroutines that end by themselves have ended
		})
		u := user{t, process(nodes)}
		u.closes(u.Redsync)
		f(field{u, nodes})
	})
}

// A turner returns a context that calls turn at a certain moment: see atEachTurn.
type turner func(ctx context.Context, turn func()) context.Context

// atEachTurn plays do once for each moment at which a call asks for the error of its context: do makes that call with
// the context that the turner returns, and the turn comes at that moment.
func atEachTurn(t *testing.T, do func(f field, turning turner)) {
	t.Helper()
	for n, turned := int64(1), true; turned; n++ {
		play(t, func(f field) {
			var asked atomic.Int64
			do(f, func(ctx context.Context, turn func()) context.Context {
				return turning{ctx, func() {
					if asked.Add(1) == n {
						turn()
					}
				}}
			})
			turned = asked.Load() >= n
		})
	}
}

// A turning is a context that calls asked when it is asked for its error.
type turning struct {
	context.Context //nolint:containedctx // it is one

	asked func()
}

// Err implements context.Context.
func (c turning) Err() error {
	c.asked()
	return c.Context.Err()
}

// computing limits how many CPU-bound tests run at once.
var computing = make(chan struct{}, runtime.GOMAXPROCS(0))

// parallelComputing is t.Parallel for a CPU-bound test. It leaves processors to the tests that run beside it and wait
// for real servers. For a test that is already parallel it does nothing.
func parallelComputing(t *testing.T) {
	t.Helper()
	if _, is := inParallel.LoadOrStore(t, true); is {
		return
	}
	t.Parallel()
	computing <- struct{}{}
	t.Cleanup(func() { <-computing })
}

// alone lets no test run beside t, which changes what all tests share.
func alone(t *testing.T) { inParallel.Store(t, true) }

// inParallel has the tests that have called parallelComputing, and those for which it does nothing.
var inParallel sync.Map

// besideOthers is parallelComputing, except for a part of a test: what a test says about its parts comes behind them.
func besideOthers(t *testing.T) {
	t.Helper()
	if !strings.Contains(t.Name(), "/") {
		parallelComputing(t)
	}
}

// process returns a Redsync with connections of its own. It has not met any node: no node has answered it yet.
func process(nodes embedded.Nodes, options ...pool.Option) *redsync.Redsync {
	return on(clientsOf(nodes), options...)
}

// clientsOf returns a client of each node.
func clientsOf(nodes embedded.Nodes) (clients []*redis.Client) {
	for _, n := range nodes {
		clients = append(clients, n.Client())
	}
	return clients
}

// on returns a Redsync on pools of its own.
func on(clients []*redis.Client, options ...pool.Option) *redsync.Redsync {
	var pools []pool.Pool
	for _, c := range clients {
		pools = append(pools, pool.New(c, options...))
	}
	return redsync.New(pools...)
}

// process returns another process, which has not met any node.
func (f field) process(options ...pool.Option) *redsync.Redsync { return process(f.nodes, options...) }

// as returns a copy of f that uses rs as its Redsync.
func (f field) as(rs *redsync.Redsync) field {
	f.Redsync = rs
	return f
}

// process returns another process, whose pools have these options. It has not met any node, and is closed at the end.
func (k kit) process(options ...pool.Option) *redsync.Redsync {
	rs := redsync.New(k.nodes.Pools(options...)...)
	k.closes(rs)
	return rs
}

// another returns a further process that has met the nodes. Its locks have these defaults.
func (k kit) another(options ...redsync.Option) *redsync.Redsync {
	k.Helper()
	rs := k.nodes.Process()
	user{k.T, rs}.meet()
	return rs.With(options...)
}

func (f field) another(options ...redsync.Option) *redsync.Redsync {
	f.Helper()
	rs := f.process()
	f.closes(rs)
	f.as(rs).meet()
	return rs.With(options...)
}

// wrapped returns a process. wrap wraps each of its pools. The process is closed at the end.
func (f field) wrapped(wrap func(pool.Pool) pool.Pool) *redsync.Redsync {
	var pools []pool.Pool
	for _, c := range clientsOf(f.nodes) {
		pools = append(pools, wrap(pool.New(c)))
	}
	rs := redsync.New(pools...)
	f.closes(rs)
	return rs
}

// locksBegin is when the first lock may be held in a bubble. Bubbles, and nodes that start with them, begin 2 s before.
var locksBegin = time.Date(2000, time.January, 1, 0, 0, 2, 0, time.UTC)

// newNodes makes nodes that started with the bubble count at once under the restart guard. A node that restarts after
// locksBegin does not.
var newNodes = pool.WithNoLocksBefore(locksBegin)

// veteran returns a process that has met every node. With the restart guard, the nodes count until they restart.
func (f field) veteran(options ...pool.Option) *redsync.Redsync {
	f.Helper()
	rs := f.process(append(options, newNodes)...)
	f.as(rs.With(withExpiry(sec))).meet()
	time.Sleep(max(ms, time.Until(locksBegin)))
	return rs
}

// closes closes rs when the test ends, even if it fails.
func (u user) closes(rs ...*redsync.Redsync) {
	u.Cleanup(func() {
		for _, r := range rs {
			_ = r.Close(context.Background()) // nodes may be frozen
		}
	})
}

// closesAtOnce checks that Close takes no time, which shows that no operation is under way.
func (u user) closesAtOnce() {
	u.Helper()
	start := time.Now()
	shut(u, u.Redsync)
	took(u, start, 0)
}

// realProcess returns a process whose node deadlines are long enough for a slow machine.
func realProcess(servers []*realredis.Server) *redsync.Redsync {
	pools := make([]pool.Pool, len(servers))
	for i, s := range servers {
		pools[i] = pool.New(s.Client())
	}
	return redsync.New(pools...).With(redsync.WithTimeoutFactor(0.4))
}

// Nodes whose replies the test decides.

// errBroken is the error of a broken connection to a scripted node.
var errBroken = errors.New("the connection broke")

// A journal is a fake node that notes when it is sent extensions and releases. It takes every script that is not an
// extension for a release.
type journal struct {
	scripted.Node
	start time.Time

	mu       sync.Mutex
	extends  []time.Duration
	releases []time.Duration
}

// newJournal returns a journal that answers with answer, or with scripted.Yes if answer is nil.
func newJournal(answer func(wire.Request) (*wire.Reply, error)) *journal {
	j := &journal{start: time.Now()}
	if answer == nil {
		answer = scripted.Yes
	}
	j.Answer = func(req wire.Request) (*wire.Reply, error) {
		j.note(req)
		return answer(req)
	}
	return j
}

func (j *journal) note(req wire.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case isExtend(req):
		j.extends = append(j.extends, time.Since(j.start))
	case req.Args[0] != "set":
		j.releases = append(j.releases, time.Since(j.start))
	}
}

func isExtend(req wire.Request) bool { return req.Args[0] != "set" && req.Args[2] == 1 }

// extended returns the times of the extensions since its last call.
func (j *journal) extended() []time.Duration {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	extends := j.extends
	j.extends = nil
	return extends
}

// Locks.

// Durations that follow from the default options.
const (
	guard    = 8 * sec // the expiry
	drift    = 82 * ms // of the expiry
	validity = guard - drift
	patience = 400 * ms // the node deadline

	// How long a restarted node does not count under the restart guard.
	quarantine       = guard + drift + sec
	fencedQuarantine = quarantine + 10*sec + 3*patience
)

// guards are the options of a pool with the restart guard (true), and without it (false).
var guards = map[bool][]pool.Option{
	true:  {pool.WithRestartGuard(guard)},
	false: nil,
}

// withAndWithout runs f with the restart guard, and without it as a control that shows that the guard matters.
func withAndWithout(t *testing.T, f func(f field, guarded bool)) {
	t.Helper()
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded=%v", guarded), func(t *testing.T) {
			play(t, func(pl field) { f(pl, guarded) })
		})
	}
}

var modes = map[string]opts{
	"default": nil,
	"fair":    {withFair},
}

// inEachMode runs test in each mode. run is play or onKit, and makes what test gets.
func inEachMode[On any](t *testing.T, run func(*testing.T, func(On)), test func(on On, mode opts)) {
	t.Helper()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			run(t, func(on On) { test(on, mode) })
		})
	}
}

// patient returns the options of a waiter whose retry delay is an hour, so that only something else can make it try
// again.
func patient(more ...redsync.Option) opts {
	return append(opts{forever, withRetryDelay(hour)}, more...)
}

// Options that several tests use.
var (
	lasting     = withExpiry(minute)
	nineSeconds = withExpiry(9 * sec) // a third of it is 3 s
	oneSecond   = withExpiry(sec)
	once        = withTries(1)
	noHandOver  = redsync.WithHandOver(false)
	twoPermits  = withPermits(2)
)

// must returns v if err is nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// noError checks that err is nil.
func noError(tb testing.TB, err error) {
	tb.Helper()
	require.NoError(tb, err)
}

// says checks that err has these texts.
func says(tb testing.TB, err error, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		require.ErrorContains(tb, err, text)
	}
}

// erred checks that err is not nil.
func erred(tb testing.TB, err error) {
	tb.Helper()
	require.Error(tb, err)
}

// logsTo returns the option of a logger that writes lines of text.
func logsTo(w io.Writer) redsync.Option {
	return redsync.WithLogger(slog.New(slog.NewTextHandler(w, nil)))
}

// operations are Unlock, Extend and Valid by name.
func operations(m *redsync.Mutex) map[string]func() (bool, error) {
	return map[string]func() (bool, error){"Unlock": m.Unlock, "Extend": m.Extend, "Valid": m.Valid}
}

// refuses checks that every operation of m fails with an error that contains what.
func refuses(tb testing.TB, m *redsync.Mutex, what string) {
	tb.Helper()
	require.ErrorContains(tb, m.Lock(), what)
	require.ErrorContains(tb, m.TryLock(), what)
	for name, operation := range operations(m) {
		ok, err := operation()
		assert.False(tb, ok, name)
		require.ErrorContains(tb, err, what, name)
	}
	assert.Zero(tb, m.Until())
	assert.Zero(tb, m.Remaining())
}

// named returns how errors name an embedded node.
func named(i int) string { return fmt.Sprintf("node #%d (127.0.0.1:%d): ", i, 7001+i) }

// held returns a Mutex that holds the lock on all five nodes.
func (k kit) held(options ...redsync.Option) *redsync.Mutex {
	k.Helper()
	m := locked(k, k.NewMutex("lock", options...))
	time.Sleep(ms)
	require.Equal(k, 5, k.keys("lock"))
	return m
}

func (f field) held(options ...redsync.Option) *redsync.Mutex {
	f.Helper()
	m := locked(f, f.NewMutex("lock", options...))
	time.Sleep(ms)
	f.keysOn(5)
	return m
}

// meet calls Lock once, so that every node answers the Redsync. A first Lock waits for that, and later ones do not.
func (u user) meet() {
	u.Helper()
	m := locked(u, u.NewMutex("meet"))
	u.confirms(m.Unlock())
	synctest.Wait() // Unlock returns at a quorum
}

// An unlocker is a Mutex or a call.
type unlocker interface{ Unlock() (bool, error) }

// locks returns a Mutex of "lock" that Lock has locked, and obtains one that TryLock has locked.
func (u user) locks(options ...redsync.Option) *redsync.Mutex {
	u.Helper()
	return locked(u, u.NewMutex("lock", options...))
}

func (u user) obtains(options ...redsync.Option) *redsync.Mutex {
	u.Helper()
	return obtained(u, u.NewMutex("lock", options...))
}

// tries returns the error of a TryLock of "lock", and lockError that of a Lock.
func (u user) tries(options ...redsync.Option) error { return u.NewMutex("lock", options...).TryLock() }

func (u user) lockError(options ...redsync.Option) error {
	return u.NewMutex("lock", options...).Lock()
}

func (u user) unlock(m unlocker) {
	u.Helper()
	u.confirms(m.Unlock())
}

// extends extends m.
func (u user) extends(m interface{ Extend() (bool, error) }) {
	u.Helper()
	u.confirms(m.Extend())
}

// does is Do of the Redsync, and current is Current of rs, in the context of the test.
func (u user) does(name string, do work, options ...redsync.Option) error {
	return u.Do(u.Context(), name, do, options...)
}

func (u user) current(rs *redsync.Redsync, s redsync.Sequencer) error {
	return rs.Current(u.Context(), s)
}

// unlocks unlocks m, which must hold the lock, and checks that no key is left.
func (f field) unlocks(m unlocker) {
	f.Helper()
	f.unlock(m)
	time.Sleep(3 * sec)
	f.keysOn(0)
}

// unlocks unlocks m, which must hold the lock, and checks that nothing is left.
func (k kit) unlocks(m unlocker) {
	k.Helper()
	k.unlock(m)
	time.Sleep(3 * sec)
	k.nothingLeft()
}

// open reports whether c is still open, which means not closed.
func open(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// What the nodes see and have.

// nothingLeft checks that the nodes have no key of a lock and no waiter, and that it did not have to wait for that.
func (k kit) nothingLeft() {
	k.Helper()
	synctest.Wait()
	start := time.Now()
	k.nodes.RequireNothingLeft()
	assert.Zero(k, time.Since(start), "the nodes still had something, or did not answer at once")
}

// keys counts the nodes that have a key. Nodes that do not answer are not counted.
func (k kit) keys(key string) (count int) {
	synctest.Wait() // Lock and Unlock return at a quorum
	for i := range 5 {
		if k.command(i, "exists", key) == any(int64(1)) {
			count++
		}
	}
	return count
}

// command sends a Redis command to a node, and returns what it answers at once.
func (k kit) command(node int, args ...any) any {
	k.Helper()
	p := k.nodes.Pools(pool.WithoutIdentity())[node]
	replies := make(receiver, 1)
	require.NoError(k, p.Send(wire.Request{Args: args, To: replies}))
	synctest.Wait()
	_ = p.Close()
	select {
	case reply := <-replies:
		return reply.Value
	default:
		return nil // it is down or frozen
	}
}

// A receiver takes one reply.
type receiver chan wire.Reply

func (r receiver) Receive(_ int, reply wire.Reply) { r <- reply }

// commands counts the commands of these names that all nodes were sent.
func (f field) commands(names ...string) int {
	count := 0
	for _, n := range f.nodes {
		for _, name := range names {
			count += n.Commands(name)
		}
	}
	return count
}

// traffic counts the commands of locks that the nodes were sent, after all commands on their way have arrived.
func (f field) traffic() int {
	synctest.Wait()
	return f.commands("set", "evalsha", "eval")
}

// scripts counts the scripts that the nodes were sent.
func (f field) scripts() int {
	synctest.Wait()
	return f.commands("evalsha")
}

// noKeys checks that no node has the lock's key, neither now nor 2 s later.
func (f field) noKeys() {
	f.Helper()
	synctest.Wait()
	f.keysOn(0)
	time.Sleep(2 * sec)
	f.keysOn(0)
}

// nobodyWaits checks that all queues are empty.
func (f field) nobodyWaits() {
	f.Helper()
	synctest.Wait()
	for i, n := range f.nodes {
		for _, key := range n.Keys() {
			waits := strings.HasSuffix(key, ":queue") || strings.HasSuffix(key, ":slots")
			assert.False(f, waits, "there are waiters in %s on node %d", key, i)
		}
	}
}

// inQueue returns the waiters in the queue of a node.
func (f field) inQueue(node int) (tickets []string) {
	queue, _ := f.nodes[node].Get("{lock}:queue")
	for record := range strings.Lines(queue) {
		tickets = append(tickets, strings.Fields(record)[0])
	}
	return tickets
}

// stranger puts a waiter of a process that does nothing in the queue of some nodes, before or behind all other waiters.
// The waiter counts as alive for the given time.
func (f field) stranger(alive time.Duration, first bool, nodes ...int) string {
	return f.strangerIn("{lock}:queue", alive, first, nodes...)
}

// strangerIn does what stranger does, in the queue with that key.
func (f field) strangerIn(key string, alive time.Duration, first bool, nodes ...int) string {
	class := 999
	if first {
		class = 0
	}
	ticket := fmt.Sprintf("%04d:%016d:%s:%010d", class, time.Now().UnixMicro(), "9999999999999999", 1)
	for _, i := range nodes {
		n := f.nodes[i]
		queue, _ := n.Get(key)
		records := append(slices.Collect(strings.Lines(queue)), fmt.Sprintf("%s %013d\n", ticket, time.Now().Add(alive).UnixMilli()))
		slices.Sort(records)
		_ = n.Set(key, strings.Join(records, ""))
		n.SetTTL(key, 2*alive)
	}
	return ticket
}

const fenceKey = "{lock}:fence"

// fenced returns a process whose locks have fencing tokens. It has met the nodes by a lock without fencing.
func (f field) fenced(options ...redsync.Option) *redsync.Redsync {
	f.Helper()
	rs := f.another(append(options, withFencing)...)
	synctest.Wait()
	return rs
}

// areAt checks the register of each node, "" for none, and that each is kept for a day from now.
func (f field) areAt(want ...any) {
	f.Helper()
	synctest.Wait()
	for i, n := range f.nodes {
		got, _ := n.Get(fenceKey)
		assert.Equal(f, fmt.Sprint(want[i]), got, "node %d", i)
		if got != "" {
			assert.Equal(f, 24*hour, n.TTL(fenceKey), "node %d", i)
		}
	}
}

// Faults.

// Each of these calls a method of Node on some nodes.

func (k kit) freeze(nodes ...int) { k.each(nodes, (*redsynctest.Node).Freeze) }
func (k kit) thaw(nodes ...int)   { k.each(nodes, (*redsynctest.Node).Thaw) }
func (k kit) down(nodes ...int)   { k.each(nodes, (*redsynctest.Node).Down) }
func (k kit) up(nodes ...int)     { k.each(nodes, (*redsynctest.Node).Up) }

// reboot calls Restart on some nodes.
func (k kit) reboot(empty bool, nodes ...int) {
	k.each(nodes, func(n *redsynctest.Node) { n.Restart(empty) })
}

func (k kit) each(nodes []int, do func(*redsynctest.Node)) {
	for _, i := range nodes {
		do(k.nodes.Node(i))
	}
}

// lose deletes the key on some nodes, which must be up.
func (k kit) lose(nodes ...int) {
	for _, i := range nodes {
		require.NotNil(k, k.command(i, "del", "lock"), "node %d does not answer", i)
	}
}

// drop deletes keys on all nodes.
func (f field) drop(keys ...string) {
	for _, n := range f.nodes {
		for _, key := range keys {
			n.Del(key)
		}
	}
}

// lose deletes the key on some nodes.
func (f field) lose(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Del("lock")
	}
}

func (f field) freeze(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Freeze()
	}
}

func (f field) thaw(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Thaw()
	}
}

func (f field) kill(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Kill()
	}
}

// restart brings nodes back with their data.
func (f field) restart(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Restart(false)
	}
}

// reboot kills nodes and starts them again at once, without data if empty.
func (f field) reboot(empty bool, nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Kill()
		f.nodes[i].Restart(empty)
	}
}

// wake makes rs notice that its connections are gone, and open new ones.
func wake(rs *redsync.Redsync) {
	_ = rs.NewMutex("wake").TryLock()
	time.Sleep(100 * ms)
}

// sets gives a key a value for a while, on some nodes.
func (f field) sets(key, value string, ttl time.Duration, nodes ...int) {
	for _, i := range nodes {
		noError(f, f.nodes[i].Set(key, value))
		f.nodes[i].SetTTL(key, ttl)
	}
}

// loseMessages makes nodes lose the next messages.
func loseMessages(nodes embedded.Nodes, count int) {
	for _, n := range nodes {
		n.LoseMessages(count)
	}
}

// onEach makes nodes answer the next commands of a name with a fault.
func onEach(nodes embedded.Nodes, command string, times int, fault embedded.Fault) {
	for _, n := range nodes {
		n.On(command, times, fault)
	}
}

// slow makes every node answer scripts and SET late, the next 1000 of each.
func (f field) slow(by time.Duration) {
	for _, command := range []string{"evalsha", "set"} {
		onEach(f.nodes, command, 1000, embedded.Fault{Delay: by})
	}
}

// delays makes node i take i times 10 ms for its next such command.
func (f field) delays(command string) {
	for i, n := range f.nodes {
		n.On(command, 1, embedded.Fault{Delay: time.Duration(i) * 10 * ms})
	}
}

// refuse makes nodes answer scripts with errors.
func (f field) refuse(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].On("evalsha", 1<<20, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
	}
}

// hit returns a function that hits nodes with a fault.
func hit(fault func(field, ...int), nodes ...int) func(field) {
	return func(f field) { fault(f, nodes...) }
}

// hooked is a pool that runs a function once, before it sends the next request.
type hooked struct {
	pool.Pool
	hook *atomic.Pointer[func()]
}

func (h hooked) Send(req wire.Request) error {
	if f := h.hook.Swap(nil); f != nil {
		(*f)()
	}
	return h.Pool.Send(req)
}

// refusing is a pool that refuses to send while on is set.
type refusing struct {
	pool.Pool
	on *atomic.Bool
}

func (r refusing) Send(req wire.Request) error {
	if r.on.Load() {
		return &pool.OutstandingError{Limit: 1}
	}
	return r.Pool.Send(req)
}

// Calls that wait.

// A call is a Lock under way.
type call struct {
	*redsync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	at     time.Time // when it returned
}

// calls calls Lock in a goroutine, and returns once that Lock waits or has returned.
func (u user) calls(rs *redsync.Redsync, options ...redsync.Option) *call {
	return u.begins(rs.NewMutex("lock", options...))
}

// waits is calls for a patient waiter.
func (u user) waits(rs *redsync.Redsync, options ...redsync.Option) *call {
	return u.calls(rs, patient(options...)...)
}

// inLine is waits in the process of u.
func (u user) inLine(options ...redsync.Option) *call { return u.waits(u.Redsync, options...) }

// foreign is waits in a process of its own.
func (f field) foreign(options ...redsync.Option) *call { return f.waits(f.another(), options...) }

// begins calls Lock of m in a goroutine, and returns once that Lock waits or has returned.
func (u user) begins(m *redsync.Mutex) *call {
	c := &call{Mutex: m, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(u.Context())
	c.cancel = cancel
	u.Cleanup(cancel)
	go func() {
		defer cancel()
		c.err = c.LockContext(ctx)
		c.at = time.Now()
		close(c.done)
	}()
	synctest.Wait()
	return c
}

func (c *call) isDone() bool { return !open(c.done) }

// within waits until the call c has the lock. It checks that this takes at most limit, and returns how long it took.
func (u user) within(c *call, limit time.Duration) time.Duration {
	u.Helper()
	start := time.Now()
	<-c.done
	require.NoError(u, c.err)
	took := c.at.Sub(start)
	assert.LessOrEqual(u, took, limit)
	return took
}

// served is within, and unlocks c.
func (u user) served(c *call, limit time.Duration) time.Duration {
	u.Helper()
	took := u.within(c, limit)
	u.unlock(c)
	return took
}

// stillWait checks that no call has returned.
func (u user) stillWait(calls ...*call) {
	u.Helper()
	for i, c := range calls {
		require.False(u, c.isDone(), "call %d", i)
	}
}

// atOnce unlocks m and checks that c has the lock at the same moment.
func (u user) atOnce(m unlocker, c *call) {
	u.Helper()
	require.False(u, c.isDone())
	start := time.Now()
	_, _ = m.Unlock() // faults may make its result wrong
	<-c.done
	require.NoError(u, c.err)
	assert.Equal(u, time.Duration(0), c.at.Sub(start))
}

// handed hands a lock over from giver to receiver, which have these options. It also returns the giver's Until.
func (f field) handed(giving, receiving opts) (giver *redsync.Mutex, receiver *call, until time.Time) {
	f.Helper()
	f.meet()
	giver = f.NewMutex("lock", giving...)
	locked(f, giver)
	receiver = f.calls(f.Redsync, patient(receiving...)...)
	time.Sleep(ms)
	until = giver.Until()
	before := f.traffic()
	f.atOnce(giver, receiver)
	require.Equal(f, before, f.traffic(), "nothing is sent")
	return giver, receiver, until
}

// inOrder lets each call have the lock in turn for the time hold, and returns the order.
func (u user) inOrder(calls []*call, hold time.Duration) (order []int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			<-c.done
			if c.err != nil {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(hold)
			_, err := c.Unlock()
			assert.NoError(u, err)
		})
	}
	wg.Wait()
	return order
}

// ascending returns 0 to n-1.
func ascending(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// waiting makes a waiter try every 100 ms until then, and every millisecond after that.
func waiting(then time.Time) redsync.Option {
	return redsync.WithRetryDelayFunc(func(int) time.Duration {
		if time.Now().Before(then) {
			return 100 * ms
		}
		return ms
	})
}

// Observers.

// of returns the events of one kind, in order, and their errors. Start and Err of the events are cleared, so that
// the rest can be compared as a whole.
func of[E redsynctest.Event](r *redsynctest.Recorder) (events []E, errs []error) {
	synctest.Wait()
	events = redsynctest.Events[E](r)
	errs = make([]error, len(events))
	for i := range events {
		e := reflect.ValueOf(&events[i]).Elem()
		if field := e.FieldByName("Err"); field.IsValid() {
			errs[i], _ = reflect.TypeAssert[error](field)
			field.SetZero()
		}
		if field := e.FieldByName("Start"); field.IsValid() {
			field.SetZero()
		}
	}
	return events, errs
}

// only returns the one event of a kind, with its error.
func only[E redsynctest.Event](tb testing.TB, r *redsynctest.Recorder) (E, error) {
	tb.Helper()
	events, errs := of[E](r)
	require.Len(tb, events, 1)
	return events[0], errs[0]
}

// observingAs is observing as a subtest.
func observingAs(t *testing.T, name string, f func(f field, r *redsynctest.Recorder)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { observing(t, f) })
}

// forget drops what was recorded so far.
func forget(r *redsynctest.Recorder) {
	synctest.Wait()
	r.Reset()
}

// observing is play with a recorder of the events of the field's locks. The Redsync has met all nodes.
func observing(t *testing.T, f func(f field, r *redsynctest.Recorder)) {
	t.Helper()
	play(t, func(pl field) {
		rs, r := pl.records()
		f(pl.as(rs), r)
	})
}

// logs returns the option of a logger whose handler panics at a message.
func logs(message string) redsync.Option { return redsync.WithLogger(slog.New(panics{on: message})) }

// recordsTo returns the option of hooks that record all events.
func recordsTo(r *redsynctest.Recorder) redsync.Option { return withHooks(r.Hooks()) }

// atAttempts returns the option of a hook that calls f.
func atAttempts(f func(observe.Attempt)) redsync.Option {
	return withHooks(&observe.Hooks{Attempt: func(_ context.Context, a observe.Attempt) { f(a) }})
}

// naps returns the option of a hook that sleeps for d at each attempt.
func naps(d time.Duration) redsync.Option { return atAttempts(func(observe.Attempt) { time.Sleep(d) }) }

// atEach returns the option of hooks that call f with each event.
func atEach(f func(ctx context.Context, event any)) redsync.Option {
	hooks := &observe.Hooks{}
	for all, i := reflect.ValueOf(hooks).Elem(), 0; i < all.NumField(); i++ {
		all.Field(i).Set(reflect.MakeFunc(all.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
			f(args[0].Interface().(context.Context), args[1].Interface())
			return nil
		}))
	}
	return withHooks(hooks)
}

// panicsAt returns the option of hooks that panic at a kind of events.
func panicsAt(kind string) redsync.Option {
	return atEach(func(_ context.Context, event any) {
		if reflect.TypeOf(event).Name() == kind {
			panic("the user's")
		}
	})
}

// panics is a log handler. It panics at the message that on is.
type panics struct {
	on string
	slog.Handler
}

func (panics) Enabled(context.Context, slog.Level) bool { return true }

func (p panics) Handle(_ context.Context, r slog.Record) error {
	if p.on == r.Message {
		panic("the user's")
	}
	return nil
}

// sequencerOfNames returns the Sequencer of a hold on these names.
func sequencerOfNames(names []string, token uint64, value string) redsync.Sequencer {
	encode := base64.RawURLEncoding.EncodeToString
	form := "redsync1"
	if len(names) > 1 {
		form = "redsync2.names"
		for _, name := range names {
			form += fmt.Sprint("-", len(name))
		}
	}
	text := fmt.Sprintf("%s.%s.%d.%s", form, encode([]byte(strings.Join(names, ", "))), token, encode([]byte(value)))
	s, err := redsync.ParseSequencer(text)
	if err != nil {
		panic(err)
	}
	return s
}
