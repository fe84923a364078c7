package redsync_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows what WithLogger writes, and that no event shows a value.

func newLogbook() *logbook {
	l := &logbook{}
	l.Handler = slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug})
	return l
}

// option is WithLogger.
func (l *logbook) option() redsync.Option { return redsync.WithLogger(slog.New(l)) }

func TestLoggerLevels(t *testing.T) {
	testlength.FromGate(t)
	for name, c := range map[string]struct {
		happens func(f field)
		want    map[string]int // entries above the level debug
	}{
		"a node is down": {func(f field) {
			f.kill(0)
			m := f.locks(withWatchdog)
			time.Sleep(20 * sec)
			f.unlock(m)
		}, map[string]int{"WARN redsync: node is down": 2}}, // after 10 s again
		"a loss is found by Unlock": {func(f field) {
			m := f.held()
			f.lose(majority...)
			_, _ = m.Unlock()
		}, map[string]int{"ERROR redsync: lost": 1}},
		"Unlock of a lock whose loss was proved": {func(f field) {
			m := f.held()
			f.lose(majority...)
			failsWith(f, m.Valid, redsync.ErrLockLost)
			erred(f, second(m.Unlock()))
		}, map[string]int{"ERROR redsync: lost": 1}},
		"an extension sets missing keys again": {func(f field) {
			m := f.held(withSetNXOnExtend)
			for range 5 {
				f.lose(majority...)
				failsWith(f, m.Extend, redsync.ErrExtendFailed)
			}
		}, map[string]int{"WARN redsync: extend failed": 1}},
		"Unlock and Detach end an Extend": {func(f field) {
			f.freeze(majority...)
			for _, end := range []func(m *redsync.Mutex){
				func(m *redsync.Mutex) { _, _ = m.Unlock() },
				func(m *redsync.Mutex) { _, _ = m.Detach(f.Context()) },
			} {
				f.thaw(majority...)
				m := f.locks()
				synctest.Wait()
				f.freeze(majority...)
				extended := make(chan error)
				go func() { extended <- second(m.Extend()) }()
				synctest.Wait()
				time.AfterFunc(100*ms, func() { f.thaw(majority...) })
				end(m)
				errorIs(f, <-extended, redsync.ErrNotHeld)
			}
		}, map[string]int{}},
		"a watchdog finds a loss": {func(f field) {
			f.held(withWatchdog)
			f.lose(majority...)
			time.Sleep(20 * sec)
		}, map[string]int{"ERROR redsync: lost": 1}},
		"the user may lock only some names": {func(f field) {
			for range 9 {
				for _, n := range f.nodes {
					n.On("set", 1<<20, embedded.Fault{Err: "NOPERM No permissions to access a key"})
					n.On("evalsha", 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions to access one of the keys used as arguments"})
				}
				for _, o := range []opts{nil, {withFair}, {withShared}} {
					require.ErrorIs(f, f.NewMutex("denied", o...).TryLock(), redsync.ErrNoQuorum)
				}
				synctest.Wait()
				for _, n := range f.nodes {
					n.Heal()
				}
				f.uses()
				time.Sleep(time.Second)
			}
		}, map[string]int{"WARN redsync: the nodes deny the name of the lock": 1}},
		"one node denies some names": {func(f field) {
			const noName = "NOPERM this user has no permissions to access one of the keys used as arguments"
			for range 60 {
				m := f.locks()
				f.nodes[1].On("evalsha", 1, embedded.Fault{Err: noName})
				_, err := m.Extend()
				require.NoError(f, err)
				synctest.Wait()
				_, err = m.Unlock()
				require.NoError(f, err)
				f.nodes[1].On("set", 1, embedded.Fault{Err: noName})
				f.uses()
				f.uses()
				time.Sleep(time.Second)
			}
			f.nodes[1].On("set", 1<<20, embedded.Fault{Err: noName})
			for range 9 { // now it denies all names
				f.uses()
				time.Sleep(time.Second)
			}
		}, map[string]int{
			"WARN redsync: node is down": 2, "INFO redsync: node is up again": 1, "WARN redsync: the node does not let waiters be woken": 1,
		}},
		"the nodes execute SET, and no script": {func(f field) {
			for i, n := range f.nodes {
				refused := embedded.Fault{Err: []string{
					"ERR command is not allowed", "NOPERM this user has no permissions to run the 'evalsha' command",
				}[i%2]}
				n.On("evalsha", 1<<20, refused)
				n.On("eval", 1<<20, refused)
			}
			for i := range 50 { // for 25 s
				m := locked(f, f.NewMutex(fmt.Sprint(i)))
				failsWith(f, m.Extend, redsync.ErrNoQuorum)
				failsWith(f, m.Unlock, redsync.ErrNoQuorum)
				time.Sleep(500 * ms)
			}
		}, map[string]int{"WARN redsync: no quorum": 3, "WARN redsync: node is down": 5}},
		"the nodes refuse an Extend for a while, and no Extend follows": {func(f field) {
			m := f.locks()
			for i, n := range f.nodes {
				n.On("evalsha", 1<<20, embedded.Fault{Err: []string{"NOAUTH Authentication required.", "ERR failover under way"}[i%2]})
			}
			failsWith(f, m.Extend, redsync.ErrNoQuorum)
			synctest.Wait()
			for _, n := range f.nodes {
				n.Heal()
			}
			time.Sleep(time.Second)
			locked(f, f.NewMutex("other"))
			synctest.Wait()
		}, map[string]int{
			"WARN redsync: no quorum": 1, "WARN redsync: node is down": 5,
			"INFO redsync: a quorum answers again": 1, "INFO redsync: node is up again": 5,
		}},
		"a node is back after a pause": {func(f field) {
			f.kill(1)
			f.uses()
			time.Sleep(time.Minute)
			f.restart(1)
			f.nodes[1].On("set", 1, embedded.Fault{Delay: 10 * ms}) // it answers after the others
			f.uses()
			time.Sleep(time.Second)
			f.uses()
		}, map[string]int{"WARN redsync: node is down": 1, "INFO redsync: node is up again": 1}},
	} {
		playMetAs(t, name, func(f field) {
			book := newLogbook()
			f.Redsync = f.With(book.option())
			c.happens(f)
			assert.Equal(f, c.want, book.above(), "%s", &book.text)
		})
	}
}

func TestLoggerMessagesAndAttributes(t *testing.T) {
	onKit(t, func(k kit) {
		book := newLogbook()
		k.Redsync = k.With(book.option())
		m := k.held()
		k.extends(m)
		k.down(4)
		k.unlock(m)
		time.Sleep(11 * sec)
		other := locked(k, k.NewMutex("other"))
		k.unlock(other)
		k.down(0, 1)
		time.Sleep(20 * sec)
		m = k.NewMutex("lock")
		erred(k, m.TryLock())
		k.up(0, 1, 4)
		obtained(k, m)
		time.Sleep(sec)
		k.lose(allNodes...)
		failsWith(k, m.Extend, redsync.ErrLockLost)
		erred(k, second(m.Unlock()))
		got := map[string]string{}
		synctest.Wait()
		for _, e := range book.entries {
			if attrs := strings.Join(e.attrs, " "); len(attrs) > len(got[e.message]) { // error is not always there
				got[e.message] = attrs
			}
		}
		assert.Equal(k, map[string]string{
			"redsync: attempt won":              "lock try took granted refused failed",
			"redsync: attempt failed":           "lock try took granted refused failed error",
			"redsync: not acquired":             "lock took error",
			"redsync: acquired":                 "lock took waited tries left",
			"redsync: extended":                 "lock watchdog took left",
			"redsync: extend failed":            "lock watchdog took left error",
			"redsync: unlocked":                 "lock held left took",
			"redsync: unlock failed":            "lock held left took error",
			"redsync: lost":                     "lock held error",
			"redsync: no quorum":                "lock tries error",
			"redsync: a quorum answers again":   "after",
			"redsync: node is down":             "node address for error",
			"redsync: node is up again":         "node address down",
			"redsync: release will be repeated": "lock node address pending error",
		}, got)
	})
}

// The value proves the ownership of a lock, so no event and no log entry may contain it.
func TestEventsAndLogNeverContainAValue(t *testing.T) {
	kitMet(t, func(k kit) {
		book, r := newLogbook(), &redsynctest.Recorder{}
		k.Redsync = k.With(book.option(), recordsTo(r), once)
		m, own := k.held(withWatchdog), rand.Text()
		values := []string{m.Value(), own}
		erred(k, k.lockError())
		a := k.NewMutex("lock", withValue(m.Value()))
		k.extends(a)
		k.down(0)
		k.freeze(1)
		time.Sleep(10 * sec)
		k.lose(2, 3, 4)
		time.Sleep(20 * sec)
		_, _ = m.Unlock()
		_, _ = a.Unlock()
		constant := withGenValueFunc(func() (string, error) { return own, nil })
		locked(k, k.NewMutex("other", constant))
		erred(k, k.NewMutex("other", constant).Lock())
		_ = k.Close(k.Context())
		synctest.Wait()
		all := fmt.Sprintf("%s%+v", &book.text, r.All())
		assert.Greater(k, len(all), 1000)
		for _, value := range values {
			assert.NotContains(k, all, value)
		}
	})
}

// The lines of an outage count the names that calls wait for, and the locks that could not be extended, as they are then.
// A TryLock does not wait. Copies of a Redsync with the same logger have one line.
func TestLinesOfAnOutageCountWhatIsTrue(t *testing.T) {
	testlength.FromGate(t)
	playMet(t, func(f field) {
		book := newLogbook()
		log := book.option()
		rs := f.With(log, forever, lasting)
		var held []*redsync.Mutex
		for i := range 4 {
			held = append(held, locked(f, rs.With(log).NewMutex(fmt.Sprint("held", i), withWatchdog)))
		}
		f.kill(majority...)
		var waits []*call
		for i := range 6 { // two for each name
			waits = append(waits, f.begins(rs.With(log).NewMutex(fmt.Sprint("wanted", i/2))))
		}
		time.Sleep(35 * sec)
		lines := book.linesOf("no quorum")
		assert.Len(f, lines, 4) // at once, and every 10 s
		assert.Regexp(f, `msg="redsync: no quorum" for=3\S+s names_waiting=3 locks_unextended=4 error=".*node #0 \(127.0.0.1:7001\): `, lines[3])
		_, _ = held[0].Unlock()
		for _, w := range waits[:3] {
			w.cancel()
		}
		erred(f, rs.NewMutex("tried").TryLock())
		time.Sleep(10 * sec)
		assert.Contains(f, book.linesOf("no quorum")[4], "names_waiting=2 locks_unextended=3 ")
		f.restart(majority...)
		time.Sleep(5 * sec)
		assert.Regexp(f, `level=INFO msg="redsync: a quorum answers again" after=4`, strings.Join(book.linesOf("a quorum answers again"), ""))
	})
}

// Close says for each node how many releases the node has not confirmed, however the locks got the logger.
func TestLogOfCloseHasOneLineForEachNode(t *testing.T) {
	playMet(t, func(f field) {
		book := newLogbook()
		log := book.option()
		for i := range 30 {
			locked(f, f.With(log).NewMutex(fmt.Sprint("lock", i), log))
		}
		f.freeze(3, 4)
		shut(f, f.Redsync)
		const line = `time=2000-01-01T00:00:00.400Z level=WARN msg="redsync: releases unconfirmed" node=%d ` +
			`address=127.0.0.1:%d releases=30 keys_expire_within=7.7s error="no answer within 400ms"`
		assert.Equal(f, []string{fmt.Sprintf(line, 3, 7004), fmt.Sprintf(line, 4, 7005)}, book.linesOf())
		f.thaw(3, 4)
	})
}

// A program that makes a logger for each request gets no line for each request.
func TestLogOfLoggersForEachRequest(t *testing.T) {
	testlength.FromGate(t)
	playMet(t, func(f field) {
		f.kill(majority...)
		book := newLogbook()
		for range 1000 {
			m := f.NewMutex("lock", book.option())
			errorIs(f, m.TryLock(), redsync.ErrNoQuorum)
		}
		assert.Equal(f, map[string]int{"WARN redsync: no quorum": 16, "WARN redsync: node is down": 3 * 16}, book.above())
	})
}

// What happens again and again has a line for each node at most once in 10 s. A denial lasts until somebody changes the
// node, so it has one in an hour.
func TestLogOfWhatHappensAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, ctx := newLogbook(), t.Context()
		l := fortests.LogHooks(slog.New(book)).(*observe.Hooks)
		one := observe.OneServer{Nodes: [2]int{0, 4}, Addresses: [2]string{"redis-0:6379", "redis-4:6379"}}
		for i := range 1500 { // for 15 s
			name, address := fmt.Sprint("lock", i), "redis-1:6379"
			l.ReleaseUnconfirmed(ctx, observe.ReleaseUnconfirmed{Name: name, Node: 1, Address: address, GivenUp: true})
			l.ReleaseUnconfirmed(ctx, observe.ReleaseUnconfirmed{Name: name, Node: 2, Address: address})
			l.WakeUpDenied(ctx, observe.WakeUpDenied{Name: name, Node: 1, Address: address})
			l.WakeUpDenied(ctx, observe.WakeUpDenied{Node: 2, Address: address})
			l.RegisterIgnored(ctx, observe.RegisterIgnored{Name: name, Node: 1, Address: address})
			l.Extended(ctx, observe.Extended{Name: name, Watchdog: true, Err: redsync.ErrExtendFailed})
			l.OneServer(ctx, one)
			l.TwoServers(ctx, observe.TwoServers{Nodes: one.Nodes})
			time.Sleep(10 * ms)
		}
		for range 1500 {
			l.EventsDropped(ctx, observe.EventsDropped{Events: 3})
			time.Sleep(10 * ms)
		}
		assert.Equal(t, map[string]int{
			"WARN redsync: release given up":                            2,
			"WARN redsync: the node does not let waiters be woken":      2, // one for each of two nodes
			"WARN redsync: a fencing register is ignored":               2,
			"WARN redsync: extend failed":                               2,
			"WARN redsync: events were dropped":                         2,
			"WARN redsync: two nodes are one server, which counts once": 2,
			"INFO redsync: the two nodes are different servers again":   2,
		}, book.above())
		assert.Contains(t, book.linesOf("release given up")[1], `lock=lock1000 node=1 address=redis-1:6379 pending=0 omitted=999`)
		assert.Contains(t, book.linesOf("events were dropped")[1], "events=3000")
	})
}

// While all is well, there is no line above Debug, whatever the program does. That includes contention, a context that
// ends in an attempt on a lock that is taken, and Close while locks are held.
func TestLogSaysNothingWhileAllIsWell(t *testing.T) {
	testlength.FromGate(t)
	onTrial(t, 3, threeNodes, func(tr trial) {
		book := newLogbook()
		tr.Redsync = tr.With(book.option())
		kind := lockKinds[tr.kind]
		for _, row := range modeRows {
			switch {
			case row.cells[tr.kind] != works:
				continue
			case row.use != nil:
				m := kind.lock(tr.Redsync)
				require.NoError(tr, m.Lock(), row.name)
				row.use(used{tr.user, kind, m})
				_, _ = m.Unlock()
			case row.option != nil && sides(tr.kind, row) == nil:
				tr.try(row)
			}
			require.Empty(tr, book.above(), "%s: %s", row.name, &book.text)
		}
		m := locked(tr, kind.lock(tr.Redsync, withWatchdog, withMaxHold(10*minute)))
		time.Sleep(minute)
		rival := kind.rival(tr.Redsync, forever, withRetryDelay(10*ms))
		for d := 0; d < 100; d += 9 {
			field{tr.user, tr.nodes}.slow(10 * ms)
			ctx := limited(tr, time.Duration(d)*ms)
			erred(tr, rival.LockContext(ctx))
			_, _ = m.ExtendContext(ctx)
			for _, n := range tr.nodes {
				n.Heal()
			}
		}
		waits := make(chan error)
		go func() { waits <- rival.Lock() }()
		time.Sleep(sec)
		shut(tr, tr.Redsync)
		errorIs(tr, <-waits, redsync.ErrClosed)
		failsWith(tr, m.Unlock, redsync.ErrClosed)
		assert.Empty(tr, book.above(), "%s", &book.text)
	})
}

// An entry is one line of a log.
type entry struct {
	level   slog.Level
	message string
	attrs   []string
}

// A logbook is a slog.Handler that keeps what is written.
type logbook struct {
	slog.Handler
	mu      sync.Mutex
	entries []entry
	text    strings.Builder
}

func (l *logbook) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{level: r.Level, message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs = append(e.attrs, a.Key)
		return true
	})
	l.entries = append(l.entries, e)
	return l.Handler.Handle(ctx, r)
}

// forget drops the entries so far.
func (l *logbook) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// above counts the entries above the level debug, by level and message.
func (l *logbook) above() map[string]int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[string]int{}
	for _, e := range l.entries {
		if e.level > slog.LevelDebug {
			count[e.level.String()+" "+e.message]++
		}
	}
	return count
}

// linesOf returns the lines above the level debug whose message is one of these; all of them if there is none.
func (l *logbook) linesOf(messages ...string) (lines []string) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		wanted := len(messages) == 0
		for _, m := range messages {
			wanted = wanted || strings.Contains(line, `msg="redsync: `+m+`"`)
		}
		if wanted && !strings.Contains(line, "level=DEBUG") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}
