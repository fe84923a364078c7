package redsync_test

import (
	"context"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file fuzzes names, options, registers and Sequencers, on nodes in virtual time.

// onThree runs f with three nodes and two processes.
func onThree(t *testing.T, f func(t *testing.T, nodes embedded.Nodes, a, b *redsync.Redsync)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(3)
		a, b := process(nodes), process(nodes)
		defer func() {
			_ = a.Close(context.Background())
			_ = b.Close(context.Background())
			nodes.Close()
			sleep(minute)
		}()
		f(t, nodes, a, b)
	})
}

// contents returns the texts of all keys of a node, except for the keys of the names in without.
func contents(n *embedded.Node, without ...string) map[string]string {
	found := map[string]string{}
	for _, key := range n.Keys() {
		found[key], _ = n.Get(key)
	}
	for _, name := range without {
		for _, key := range []string{name, script.QueueKey(name), script.FenceKey(name)} {
			delete(found, key)
		}
	}
	return found
}

func allowed(name string) bool { return name != "" && script.Reserved(name) == "" }

// Any bytes can be the name of a lock, except for the empty and the reserved names. The lock excludes, wakes a waiter
// of another process at once, extends, and leaves no key except for its register. None of that touches a key of another
// name.
func FuzzName(f *testing.F) {
	testlength.NotShort(f)
	names := strings.Split("lock,, ,\x00,\n,\r\n$3\r\n,',\",\\,{b},{,},{},a}b,{}x,{{b}},{b}:queue,{b}:fence,{b}:{b}:queue,:queue,queue,"+
		"\xff\xfe,säule ☃,%s%d,--,KEYS[1],redsync:0000000000000000,0,-1,nil,*,a b,\x1b[0m", ",")
	for _, name := range append(names, strings.Repeat("n", 20_000), strings.Repeat("{", 300)) {
		f.Add(name, []string{"lock2", name + "x", "{" + name + "}", name + ":queue"}[len(name)%4], uint8(len(name)))
	}
	f.Fuzz(func(t *testing.T, name, other string, how uint8) {
		if len(name) > 1<<16 || name == other || !allowed(other) {
			t.Skip()
		}
		options, fences := patient(), how&1 != 0
		if fences {
			options = append(options, withFencing)
		}
		if how&2 != 0 {
			options = append(options, withFair)
		}
		onThree(t, func(t *testing.T, nodes embedded.Nodes, a, b *redsync.Redsync) {
			beside := locked(t, a.NewMutex(other, withExpiry(hour), withFencing))
			sleep(ms)
			before := contents(nodes[0], name)
			require.Len(t, before, 2)

			first, second := a.NewMutex(name, options...), b.NewMutex(name, options...)
			if !allowed(name) {
				require.NotErrorIs(t, first.Lock(), redsync.ErrFailed)
				_, err := first.Unlock()
				require.Error(t, err)
				require.Equal(t, before, contents(nodes[0]))
				return
			}
			locked(t, first)
			require.Equal(t, name, first.Name())
			isTaken(t, second.TryLock())
			waits := make(chan error, 1)
			go func() { waits <- second.Lock() }()
			sleep(2 * sec)
			confirmed(t, first.Extend)
			confirmed(t, first.Valid)
			require.Equal(t, before, contents(nodes[0], name))

			released, token := time.Now(), first.Fence()
			confirmed(t, first.Unlock)
			require.NoError(t, <-waits)
			require.Equal(t, released, time.Now(), "the waiter has the lock at the moment of the release")
			require.Equal(t, fences, second.Fence() > token)
			if fences {
				require.NoError(t, a.Current(t.Context(), second.Sequencer()))
			}
			confirmed(t, second.Unlock)
			sleep(5 * sec)
			want := maps.Clone(before)
			if fences {
				want[script.FenceKey(name)], _ = nodes[0].Get(script.FenceKey(name))
			}
			require.Equal(t, want, contents(nodes[0]))
			require.Positive(t, beside.Remaining())
			confirmed(t, beside.Valid)
		})
	})
}

// With any options, Lock works and keeps its promises, or fails with an error that names an option. The holder's
// validity ends before each key does, by the drift and the lock delay. It never lasts longer than the expiry or the
// longest hold.
func FuzzOptions(f *testing.F) {
	const s = int64(sec)
	add := func(expiry int64, drift, factor float64, node, delay, maxHold, retry int64, tries, class, how int) {
		f.Add(expiry, drift, factor, node, delay, maxHold, retry, tries, class, how)
	}
	add(8*s, 0.01, 0.05, 0, 0, 0, 1, 1, 0, 0)
	add(s/1000*3, 0.01, 1.0, 0, 1, 1, 0, 2, 999, 0xffff)
	add(100*365*24*3600*s, 0.0, 1.0, 0, 0, 0, math.MaxInt64, 3, -999, 0x1f)
	add(math.MaxInt64, 0.5, 1.0, 1, math.MaxInt64, math.MaxInt64, -1, 1, 0, 0)
	add(s, 0.01, math.Inf(1), 0, 0, 0, 0, 0, 0, 0)
	add(s, 0.01, 0.05, -1, -1, -1, -1, -1, 1000, 0x7ff)
	add(s, 0.9, 0.05, s/40, s/7, s/3, 0, 2, 5, 0xfff)
	f.Fuzz(func(t *testing.T, expiry int64, drift, factor float64, node, delay, maxHold, retry int64, tries, class, how int) {
		options := opts{
			withExpiry(time.Duration(expiry)), redsync.WithDriftFactor(drift), redsync.WithTimeoutFactor(factor),
			withTries(tries), withLockDelay(time.Duration(delay)),
		}
		for bit, more := range []redsync.Option{
			withNodeTimeout(time.Duration(node)), withMaxHold(time.Duration(maxHold)), withRetryDelay(time.Duration(retry)), redsync.WithPriority(class),
			withFencing, withFair, withWatchdog, withSetNXOnExtend, hearsAll, redsync.WithHandOver(false), withValue("adopted"),
		} {
			if how&(1<<bit) != 0 {
				options = append(options, more)
			}
		}
		onThree(t, func(t *testing.T, nodes embedded.Nodes, a, _ *redsync.Redsync) {
			m, start := a.NewMutex("lock", options...), time.Now()
			if err := m.TryLock(); err != nil {
				require.NotErrorIs(t, err, redsync.ErrFailed)
				require.Regexp(t, `With[A-Z]\w+\(.*\) is out of range: |too few nodes answered in time: `, err.Error())
				require.Zero(t, m.Remaining())
				sleep(sec)
				require.Zero(t, nodes.Keys("lock"))
				return
			}
			checkBelief := func() {
				left := m.Remaining()
				require.LessOrEqual(t, m.Until().Sub(start), time.Duration(expiry)-2*ms)
				if how&2 != 0 {
					require.LessOrEqual(t, m.Until().Sub(start), time.Duration(maxHold))
				}
				for i, n := range nodes {
					if n.Exists("lock") && left > 0 {
						require.GreaterOrEqual(t, n.TTL("lock"), left+2*ms, "node %d", i)
						require.LessOrEqual(t, n.TTL("lock").Milliseconds(), time.Duration(expiry).Milliseconds()+time.Duration(delay).Milliseconds()+1)
					}
				}
			}
			checkBelief()
			synctest.Wait()
			checkBelief()
			if ok, err := m.Extend(); ok {
				checkBelief()
			} else {
				require.Error(t, err)
			}
			held := m.Remaining() > 0
			ok, err := m.Unlock()
			require.Equal(t, held, ok, "%v", err)
			sleep(2 * sec)
			if held || delay <= 0 {
				require.Zero(t, nodes.Keys("lock"))
			}
		})
	})
}
