package redsync_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what Inspect says.

// inspected returns what m.Inspect says, which must be known.
func (u user) inspected(m *redsync.Mutex) redsync.Status {
	s, err := m.Inspect(u.Context())
	require.NoError(u, err)
	require.Equal(u, m.Name(), s.Name)
	return s
}

func TestInspectSaysWhoHoldsALockOfEachKind(t *testing.T) {
	for _, kind := range lockKinds {
		playAs(t, kind.column, func(f field) {
			operator := kind.lock(f.another())
			names, permits := operator.Names(), 0
			if kind.permit {
				permits = 1
			}
			s := f.inspected(operator)
			assert.Equal(f, redsync.StateFree, s.State)
			assert.Empty(f, s.Holders)

			m := locked(f, kind.lock(f.Redsync, withExpiry(10*sec)))
			synctest.Wait()
			sleep(sec)
			for _, from := range []*redsync.Mutex{operator, m} {
				s = f.inspected(from)
				assert.Equal(f, redsync.StateHeld, s.State)
				require.Len(f, s.Holders, 1)
				h := s.Holders[0]
				assert.InDelta(f, 9*sec, h.TTL, float64(10*ms))
				assert.Equal(f, kind.shared, h.Shared)
				assert.Equal(f, names, h.Names)
				assert.Equal(f, "redsync", h.Library)
				assert.Len(f, h.ID, 8)
				assert.Zero(f, h.Since)
				assert.Equal(f, permits, h.Permits)
				assert.Empty(f, s.Waiters)
				require.Len(f, s.Nodes, 5)
				for i, n := range s.Nodes {
					require.Len(f, n.Holders, 1)
					assert.Equal(f, h.ID, n.Holders[0].ID)
					assert.Equal(f, redsync.NodeStatus{Node: i, Address: n.Address, Holders: n.Holders}, n)
				}
				if len(names) == 1 {
					names = nil
				}
				require.Len(f, s.Names, len(names))
				for i, one := range s.Names {
					assert.Equal(f, names[i], one.Name)
					assert.Equal(f, redsync.StateHeld, one.State)
					assert.Equal(f, s.Holders, one.Holders)
				}
				names = operator.Names()
			}
			f.unlock(m)
			assert.Equal(f, redsync.StateFree, f.inspected(operator).State)
			synctest.Wait()
			assert.Empty(f, f.nodes[0].Keys())
		})
	}
}

func TestInspectSaysWhoWaits(t *testing.T) {
	testlength.NotShort(t)
	for _, kind := range lockKinds {
		playAs(t, kind.column, func(f field) {
			holder := locked(f, kind.rival(f.another(), withWatchdog))
			busy := f.another(forever, withWatchdog)
			var all []*call
			for i, rs := range []*redsync.Redsync{busy, busy, f.another(forever)} {
				all = append(all, f.begins(kind.lock(rs, withExpiry(time.Duration(4+i)*sec))))
			}
			sleep(2 * sec)
			s := f.inspected(kind.lock(f.Redsync))
			require.Len(f, s.Waiters, 2, "%v", s)
			for _, w := range s.Waiters {
				assert.NotZero(f, w.Process)
				assert.Equal(f, 1, w.Count, "%v", s.Waiters)
			}
			assert.Positive(f, s.Nodes[4].Waiters)
			for _, w := range all {
				w.cancel()
				<-w.done
				require.Error(f, w.err)
			}
			synctest.Wait()
			assert.Empty(f, f.inspected(kind.lock(f.Redsync)).Waiters)
			f.unlock(holder)
		})
	}
}

// Values of other libraries, of a user, and texts that are none of readers.
func TestInspectSeesHoldersOfOtherLibraries(t *testing.T) {
	for value, library := range map[string]string{
		"Tq2NfQ6zYQ1dUt4QkPJqkA==":               "redsync v4",
		"Tq2NfQ6zYQ1dUt4QkPJqkA":                 "redislock",
		"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a":       "node-redlock or redis-py",
		"A2345672345672345672345672":             "redsync",
		"my own value":                           "",
		"readers\nbroken":                        "",
		"readers\nv 12345":                       "",
		"readers\nv 99999999999x9\n":             "",
		"readers\n":                              "",
		"\x00\xff":                               "",
		"0123456789abcdef0123456789abcdeZ":       "",
		"A2345672345672345672345672~12 12 label": "",
	} {
		play(t, func(f field) {
			for i, n := range f.nodes {
				require.NoError(f, n.Set("a", value))
				if i < 4 {
					n.SetTTL("a", time.Duration(10+i)*sec)
				}
			}
			for _, option := range []redsync.Option{forever, withShared} {
				h := f.holderOf(f.NewMutex("a", option))
				assert.Equal(f, library, h.Library, "%q", value)
				assert.Equal(f, 12*sec, h.TTL, "the third longest of five")
				assert.Negative(f, f.inspected(f.NewMutex("a")).Nodes[4].Holders[0].TTL)
				assert.Empty(f, h.Owner)
				assert.False(f, h.Shared)
			}
		})
	}
}

// It takes a quorum to be a holder, and to be sure that there is none.
func TestInspectNeedsAQuorum(t *testing.T) {
	for values, want := range map[string]string{ // by node: a value, - for none, ? for a node that is down
		"aaa--": redsync.StateHeld, "aaa??": redsync.StateHeld,
		"aabb-": redsync.StateFree, "aa---": redsync.StateFree, "a---?": redsync.StateFree, "---??": redsync.StateFree,
		"aa--?": redsync.StateUnknown, "aabb?": redsync.StateUnknown, "a--??": redsync.StateUnknown,
		"--???": redsync.StateUnknown, "aa???": redsync.StateUnknown, "?????": redsync.StateUnknown,
	} {
		playAs(t, values, func(f field) {
			for i, n := range f.nodes {
				switch v := values[i]; v {
				case '-':
				case '?':
					n.Kill()
				default:
					require.NoError(f, n.Set("a", string(v)))
					n.SetTTL("a", minute)
				}
			}
			sleep(ms)
			s, err := f.NewMutex("a").Inspect(f.Context())
			assert.Equal(f, want, s.State)
			text, unknown := fmt.Sprint(err), want == redsync.StateUnknown
			assert.Equal(f, unknown, errors.Is(err, redsync.ErrNoQuorum), text)
			assert.Equal(f, unknown, err != nil)
			down := strings.Count(values, "?")
			assert.Equal(f, unknown && down < 3, strings.Contains(text, fmt.Sprintf("%d of 5 nodes answered", 5-down)))
			assert.Equal(f, unknown && down > 2, strings.Contains(text, fmt.Sprintf("%d of 5 nodes failed", down)))
			for i, n := range s.Nodes {
				assert.Equal(f, values[i] == '?', n.Err != nil)
				assert.Equal(f, unknown && n.Err != nil, strings.Contains(text, named(i)))
				assert.Equal(f, values[i] == 'a' || values[i] == 'b', len(n.Holders) == 1)
			}
		})
	}
}

// Nodes whose connections are lost with the question are asked once more.
func TestInspectAsksAgainAfterLostConnections(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for range 2 {
			s, err := m.Inspect(f.Context())
			noError(f, err)
			assert.Equal(f, redsync.StateHeld, s.State)
			for _, n := range f.nodes[:3] {
				n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
			}
		}
		f.unlock(m)
	})
}

func TestInspectThatAsksNobody(t *testing.T) {
	play(t, func(f field) {
		closed := f.another()
		shut(f, closed)
		traffic := f.nodes[0].Traffic()
		s, err := f.NewMutex("a").Inspect(parentOf(nil))
		errorIs(f, err, context.Canceled)
		require.NotErrorIs(f, err, redsync.ErrNoQuorum)
		assert.Equal(f, redsync.Status{State: redsync.StateUnknown}, s)
		_, err = f.NewMutex("a", withExpiry(-1)).Inspect(f.Context())
		require.ErrorContains(f, err, "WithExpiry(-1ns)")
		for m, want := range map[*redsync.Mutex]error{
			redsync.New().NewMutex("a"): redsync.ErrNoPools, {}: redsync.ErrNoPools, closed.NewMutex("a"): redsync.ErrClosed,
		} {
			_, err = m.Inspect(f.Context())
			errorIs(f, err, want)
		}
		assert.Equal(f, traffic, f.nodes[0].Traffic())
	})
}

// The JSON of a Status says why a node is silent, and has each process in full: a float64 would round it.
func TestStatusInJSON(t *testing.T) {
	play(t, func(f field) {
		f.kill(1)
		m := locked(f, f.NewMutex("a", withOwner("w")))
		s := f.inspected(m)
		text, err := json.Marshal(s)
		require.NoError(f, err)
		var got struct {
			State   string
			Holders []struct{ Owner, Process string }
			Nodes   []struct{ Err any }
		}
		require.NoError(f, json.Unmarshal(text, &got))
		assert.Equal(f, "held", got.State)
		assert.Equal(f, strconv.FormatUint(s.Holders[0].Process, 10), got.Holders[0].Process)
		assert.Nil(f, got.Nodes[0].Err)
		assert.Equal(f, s.Nodes[1].Err.Error(), got.Nodes[1].Err)
		f.unlock(m)
	})
}

// A node that has restarted without its keys has not said that nobody holds. Once its guard is over, it has.
func TestInspectDoesNotCountNodesUnderTheRestartGuard(t *testing.T) {
	play(t, func(f field) {
		rs := f.veteran(pool.WithRestartGuard(10 * sec))
		m := locked(f, rs.NewMutex("a", withExpiry(10*sec)))
		f.reboot(true, 0, 1, 2)
		sleep(300 * ms)
		require.Positive(f, m.Remaining())
		s, err := rs.NewMutex("a").Inspect(f.Context())
		require.ErrorContains(f, err, "restart guard")
		assert.Equal(f, redsync.StateUnknown, s.State)
		require.Error(f, s.Nodes[0].Err)
		require.NoError(f, s.Nodes[3].Err)
		sleep(30 * sec)
		assert.Equal(f, redsync.StateFree, f.inspected(rs.NewMutex("a")).State)
	})
}

// What follows tests Inspect where somebody means harm, or where nodes have forgotten what they granted.

// A record is what a program keeps of a lock. Package fmt calls no method of what is in its fields.
type record struct {
	status redsync.Status
	holder *redsync.Holder
	all    []redsync.Holder
}

// Nothing that a program writes of a Status shows the value, not even in fields that are not exported, or for the verbs that
// package fmt calls wrong.
func TestNoFormShowsTheValue(t *testing.T) {
	verbs := "%[1]v %+[1]v %#[1]v %[1]s %[1]q %[1]x %[1]X %[1]d %[1]p %[1]w %[1]! %[1]t"
	for _, kind := range lockKinds {
		play(t, func(f field) {
			m := locked(f, kind.lock(f.Redsync, withOwner("worker-7@host")))
			s := f.inspected(m)
			r := record{s, &s.Holders[0], s.Holders}
			var shown strings.Builder
			for _, v := range []any{s, &s, s.Holders, s.Holders[0], &s.Holders[0], r, &r} {
				fmt.Fprintf(&shown, verbs, v)
				text, _ := json.Marshal(v)
				shown.Write(text)
				slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "v", v)
				slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "v", v)
			}
			value := m.Value()[:26]
			assert.Contains(f, shown.String(), s.Holders[0].ID)
			for _, form := range []string{"%s", "%x", "%X"} {
				assert.NotContains(f, shown.String(), fmt.Sprintf(form, value))
			}
			f.unlock(m)
		})
	}
}

func TestInspectOfARegisterThatIsTooLarge(t *testing.T) {
	play(t, func(f field) {
		require.NoError(f, f.nodes[0].Set(fenceKey, "99999999999999999999"))
		assert.Zero(f, f.inspected(f.NewMutex("lock")).Register)
	})
}
