package redsync_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows that a name behind WithPrefix is the name with the prefix, for everything that has names.

var withP = redsync.WithPrefix("p:")

// TestPrefixIsAPartOfTheName makes one lock of each kind with a prefix, and looks at it from processes that write its name
// with the same prefix, with a shorter one, and with none.
func TestPrefixIsAPartOfTheName(t *testing.T) {
	onTrial(t, 3, threeNodes, func(tr trial) {
		kind, r := lockKinds[tr.kind], &redsynctest.Recorder{}
		whole := prefixed("p:", kind.names)
		app, other := tr.With(withP, recordsTo(r)), process(tr.nodes)
		tr.closes(other)
		m := kind.lock(app)
		assert.Equal(tr, whole, m.Names())
		assert.Equal(tr, strings.Join(whole, ", "), m.Name())
		locked(tr, m)
		time.Sleep(ms)
		for _, n := range tr.nodes {
			assert.ElementsMatch(tr, prefixed("p:", kind.keys), n.Keys())
		}
		assert.Equal(tr, m.Name(), redsynctest.Events[observe.Acquired](r)[0].Name)
		s := m.Sequencer()
		assert.Equal(tr, whole, s.Names())

		for _, same := range []*redsync.Mutex{
			kind.lock(tr.With(withP)), kind.lock(other, withP),
			kind.on(other, prefixed(":", kind.names), redsync.WithPrefix("p")), kind.on(other, whole),
			kind.on(other.With(redsync.WithPrefix("x")), whole, redsync.WithPrefix("")),
		} {
			require.Equal(tr, whole, same.Names())
			assert.Equal(tr, whole, tr.inspected(same).Holders[0].Names)
			if !kind.shared {
				err := same.TryLock()
				taken := isTaken(tr, err)
				assert.Contains(tr, err.Error(), `"p:a`)
				assert.Contains(tr, whole, taken.Name)
			}
		}
		for _, apart := range []*redsync.Mutex{kind.rival(tr.Redsync), kind.rival(other), kind.rival(other, redsync.WithPrefix("p"))} {
			obtained(tr, apart)
			tr.unlock(apart)
		}

		noError(tr, tr.current(other, s))
		noError(tr, other.With(withP).Current(tr.Context(), s))
		err := other.With(redsync.WithPrefix("q:")).Current(tr.Context(), s)
		says(tr, err, `the lock is not one of WithPrefix("q:")`)
		require.NotErrorIs(tr, err, redsync.ErrLockAlreadyExpired) // that would say that the hold is over

		noError(tr, kind.on(other, whole).ForceUnlock(tr.Context(), tr.inspected(m).Holders[0]))
		failsWith(tr, m.Valid, redsync.ErrLockLost)
		_, _ = m.Unlock()
	})
}

// TestSequencerPassesALockWithAPrefix gives a lock away to processes that name it in each way.
func TestSequencerPassesALockWithAPrefix(t *testing.T) {
	onTrial(t, 3, threeNodes, func(tr trial) {
		kind := lockKinds[tr.kind]
		other := process(tr.nodes)
		tr.closes(other)
		for what := range 4 {
			s := tr.detaches(locked(tr, kind.lock(tr.With(withP))))
			over := withSequencer(s)
			refuses(tr, kind.on(other, kind.names, redsync.WithPrefix("q:"), over), "not of")
			adopter := []*redsync.Mutex{
				kind.on(other, kind.names, withP, over), kind.on(other.With(withP), s.Names(), over),
				other.NewMutex(s.Name, over, withP), other.NewMutex(s.Name, over),
			}[what]
			assert.Equal(tr, s.Name, adopter.Name(), what)
			tr.extends(adopter)
			tr.unlock(adopter)
			time.Sleep(ms)
			assert.Empty(tr, tr.nodes[0].Keys(), what)
		}
	})
}

// TestLocksOfOneNameWithDifferentPrefixes shows that the process itself tells locks apart, and knows one lock, by the name
// with the prefix: where it nests calls, lets them wait in line, and listens to leaders.
func TestLocksOfOneNameWithDifferentPrefixes(t *testing.T) {
	play(t, func(f field) {
		p, q, short := f.With(withP), f.With(redsync.WithPrefix("q:")), f.With(redsync.WithPrefix("p"))
		f.meet()
		f.as(p).inside("a", func(ctx context.Context) {
			f.joins(ctx, short.NewMutex(":a"), redsync.FromContext(ctx), "the same name")
			errorIs(f, short.NewMutex(":a").TryLockContext(ctx), redsync.ErrNested)
			noError(f, q.Do(ctx, "a", func(ctx context.Context) error {
				assert.Equal(f, "q:a", redsync.FromContext(ctx).Name())
				time.Sleep(ms)
				f.have(5, "p:a", "q:a")
				return nil
			}))
		})
		time.Sleep(sec)

		m := locked(f, p.NewMutex("a"))
		same := f.waitsFor(short, ":a")
		time.Sleep(ms)
		noError(f, q.NewMutex("a").TryLock()) // nobody is ahead in its line
		f.silently("the lock is handed over", func() {
			f.unlock(m)
			f.within(same, 0)
		})
		fair := f.waitsFor(f.another(), "a", withP, withFair)
		time.Sleep(100 * ms)
		f.have(5, "{p:a}:queue")
		f.unlock(same)
		f.served(fair, sec)

		leads := f.watches(f.another().NewMutex("p:lead"), nil)
		time.Sleep(10 * ms)
		noError(f, p.Lead(f.Context(), "lead", lasts(20*ms)))
		time.Sleep(10 * ms)
		assert.Len(f, leads.fresh(), 3) // free, held, and free, long before the next look
		leads.stops()
	})
}

func TestPrefixOfANameThatCannotBeHad(t *testing.T) {
	play(t, func(f field) {
		for _, p := range []*redsync.Redsync{f.With(redsync.WithPrefix("{x}")), f.With(redsync.WithPrefix("y"), redsync.WithPrefix("{x}"))} {
			refuses(f, p.NewMutex(""), "must not be empty")
			refuses(f, p.NewMultiMutex([]string{"a", ""}), "must not be empty")
			refuses(f, p.NewMutex(":queue"), `the name "{x}:queue" is reserved`)
			refuses(f, p.NewMultiMutex([]string{"a", ":fence"}), `the name "{x}:fence" is reserved`)
			noError(f, p.Do(f.Context(), ":queue", nothing, redsync.WithPrefix("y")))
		}
		m := locked(f, f.NewMutex("a", withP))
		redsync.WithPrefix("q:").Apply(m)
		says(f, m.Lock(), "WithPrefix: this Mutex has its keys already")
		var none *redsync.Redsync
		errorIs(f, none.NewMutex("a", withP).Lock(), redsync.ErrNoPools)
		f.unlock(m)
	})
}

// prefixer is a hook as programs write it for redsync v4, which sends single commands alone. It changes the arguments in
// place.
type prefixer struct{ prefix string }

func (prefixer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p prefixer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args, keys := cmd.Args(), []int{1}
		switch cmd.Name() {
		case "evalsha", "eval":
			n, _ := strconv.Atoi(fmt.Sprint(args[2]))
			for keys = nil; len(keys) < n; {
				keys = append(keys, 3+len(keys))
			}
		case "set", "get", "pttl", "exists":
		default:
			keys = nil
		}
		for _, at := range keys {
			args[at] = p.prefix + args[at].(string)
		}
		return next(ctx, cmd)
	}
}

func (prefixer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestViaClientCallsHooks runs locks of all kinds on clients whose hook puts a prefix before keys. They have the keys, and
// exclude a program that sets them through such clients as redsync v4 does.
func TestViaClientCallsHooks(t *testing.T) {
	onTrial(t, 3, func(c change) *redsync.Redsync {
		var pools []pool.Pool
		for _, client := range c.clients {
			client.AddHook(prefixer{"p:"})
			c.Cleanup(func() { _ = client.Close() })
			pools = append(pools, pool.New(client, pool.ViaClient()))
		}
		return c.alone(pools)
	}, func(tr trial) {
		kind := lockKinds[tr.kind]
		key := func(name string) string { return "p:" + name }
		m := locked(tr, kind.lock(tr.Redsync, withWatchdog))
		time.Sleep(minute)
		alive(tr, m)
		for _, n := range tr.nodes {
			for _, name := range kind.keys {
				require.True(tr, n.Exists(key(name)), "%s, not in %q", key(name), n.Keys())
			}
			hooked := n.Client()
			hooked.AddHook(prefixer{"p:"})
			assert.ErrorIs(tr, hooked.SetArgs(tr.Context(), kind.keys[0], "v4", redis.SetArgs{Mode: "NX", TTL: minute}).Err(), redis.Nil)
			_ = hooked.Close()
		}
		waiter := field{tr.user, tr.nodes}.begins(kind.rival(tr.Redsync, patient()...))
		time.Sleep(sec)
		tr.unlock(m)
		<-waiter.done
		noError(tr, waiter.err)
		tr.unlock(waiter)
		for _, n := range tr.nodes {
			time.Sleep(ms)
			require.False(tr, n.Exists(key(kind.keys[0])))
			noError(tr, n.Set(key(kind.keys[0]), "v4"))
		}
		isTaken(tr, kind.rival(tr.Redsync).TryLock())
		for _, n := range tr.nodes {
			n.Del(key(kind.keys[0]))
		}
	})
}
