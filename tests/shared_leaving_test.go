package redsync_test

import (
	"crypto/rand"
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests who leaves and who joins a hold of readers, which values they can have, and denials of their queue.

// A reader cannot have a value with a line feed. So a hold with such a value cannot be downgraded, and stays as it was.
func TestAValueWithALineFeedCannotBeDowngraded(t *testing.T) {
	play(t, func(f field) {
		value := func() (string, error) { return "a line\n" + rand.Text(), nil }
		m := f.locks(withGenValueFunc(value))
		synctest.Wait()
		before := f.traffic()
		says(f, m.Downgrade(f.Context()), "line feed")
		f.hasSent(before)
		f.extends(m)
		erred(f, f.tries(withShared))
		f.unlocks(m)
	})
}

// A Mutex cannot adopt the whole text that readers have in a key, because its Unlock would release them all.
func TestTheTextOfReadersIsNoValueToAdopt(t *testing.T) {
	play(t, func(f field) {
		r := f.locks(withShared)
		synctest.Wait()
		text := must(f.nodes[0].Client().Get(f.Context(), "lock").Result())
		value := f.readersOf("lock")[0]
		for what, option := range map[string]redsync.Option{
			"value":             withValue(text),
			"sequencer":         withSequencer(redsync.Sequencer{Name: "lock", Value: text}),
			"shared, two lines": withSequencer(readSequencer(f, value+"\nb")),
		} {
			m := f.NewMutex("lock", option)
			refuses(f, m, "line feed")
			require.ErrorContains(f, m.Do(f.Context(), nothing), "line feed", what)
		}
		f.confirms(r.Valid())
		f.unlocks(r)
	})
}

// readSequencer returns the Sequencer of a shared hold with a value.
func readSequencer(f field, value string) redsync.Sequencer {
	encode := base64.RawURLEncoding.EncodeToString
	s := must(redsync.ParseSequencer("redsync2.read." + encode([]byte("lock")) + ".0." + encode([]byte(value))))
	return s
}

// The denial of a node whose vote is not needed any more does not mean that the node is down.
func TestALateDenialOfAQueue(t *testing.T) {
	playMet(t, func(f field) {
		r := &redsynctest.Recorder{}
		m := f.locks(recordsTo(r))
		synctest.Wait()
		onEach(f.nodes[:2], "evalsha", 1, embedded.Fault{Delay: 10 * ms, Err: "NOPERM no permissions"})
		f.downgrades(m)
		time.Sleep(20 * ms)
		noError(f, downOf(r, 0))
		noError(f, downOf(r, 1))
		f.unlocks(m)
		f.noKeys()
	})
}

// A node that denies its queue is sent a command without the queue, once in a round, and is not down unless it denies
// that, too.
func TestANodeThatDeniesTheQueueIsSentAnotherCommand(t *testing.T) {
	const denial = "NOPERM this user has no permissions to access one of the keys used as arguments"
	reads := func(_ field, m *redsync.Mutex) error { return m.TryLock() }
	for name, c := range map[string]struct {
		operation func(f field, m *redsync.Mutex) error
		options   opts
	}{
		"TryLock":         {reads, opts{withShared}},
		"TryLock, fenced": {reads, opts{withShared, withFencing}},
		"Downgrade":       {func(f field, m *redsync.Mutex) error { return m.Downgrade(f.Context()) }, nil},
	} {
		playMetAs(t, name, func(f field) {
			r := &redsynctest.Recorder{}
			m := f.NewMutex("lock", append(c.options, hearsAll, // each node has its vote before the round ends
				recordsTo(r))...)
			for _, sends := range []int{2, 1} { // the second time the library knows what the nodes deny
				if name == "Downgrade" {
					locked(f, m)
				}
				synctest.Wait()
				for i, n := range f.nodes {
					times, fault := 1, embedded.Fault{Then: func(args []string) { assert.NotContains(f, args, "{lock}:queue") }}
					if sends > 1 { // the last one denies both commands
						times, fault = 1+i/4, embedded.Fault{Err: denial}
					}
					n.On("evalsha", times, fault)
				}
				before := f.traffic()
				noError(f, c.operation(f, m))
				assert.Equal(f, before+5*sends, f.traffic())
				for i := range 4 {
					require.NoError(f, downOf(r, i), "node %d", i)
				}
				f.unlocks(m)
			}
			says(f, downOf(r, 4), "NOPERM")
			told := redsynctest.Events[observe.WakeUpDenied](r)
			assert.Len(f, told, 5) // each node once
			for _, d := range told {
				says(f, d.Err, denial)
			}
			f.noKeys()
		})
	}
}

// When readers and a writer wait in one line, the readers before the writer share one hold, and the reader behind the
// writer does not.
func TestReadersUpToTheFirstWriterShare(t *testing.T) {
	playMet(t, func(f field) {
		first := f.held()
		var line []*call
		for _, mode := range []opts{{withShared}, {withShared}, nil, {withShared}} {
			line = append(line, f.inLine(mode...))
			time.Sleep(ms)
		}
		f.unlock(first)
		time.Sleep(10 * ms)
		for i, done := range []bool{true, true, false, false} {
			require.Equal(f, done, line[i].isDone(), i)
		}
		assert.Equal(f, 1, f.entries("lock"))
		f.unlock(line[0])
		f.unlock(line[1])
		for _, c := range line[2:] {
			f.served(c, 10*ms)
		}
		f.nobodyWaits()
	})
}

// A reader has come to the queues of the nodes, because it was the first in its line. Then one of higher priority has taken
// its place. The first shares the hold of the second, and its ticket leaves the queues with that hold. While the ticket
// leads a queue, the node tells this process of a release instead of the next waiter.
func TestTheTicketOfAReaderThatSharesAHoldLeavesTheQueues(t *testing.T) {
	playMet(t, func(f field) {
		other := f.another()
		taken := locked(f, other.NewMutex("lock"))
		first := f.inLine(withShared)
		time.Sleep(100 * ms)
		require.Len(f, f.inQueue(0), 1)
		second := f.inLine(withShared, redsync.WithPriority(1))
		time.Sleep(100 * ms)
		require.Len(f, f.inQueue(0), 2)
		f.unlock(taken)
		f.within(first, 10*ms)
		f.within(second, 10*ms)
		require.Equal(f, 1, f.entries("lock"))
		f.unlock(first)
		f.unlock(second)
		f.nobodyWaits()
	})
}

// A reader that asks for more than the reader before it in line, a token or another expiry, does not share its hold.
func TestAReaderInLineWithOtherTermsDoesNotShare(t *testing.T) {
	for _, option := range []redsync.Option{withFencing, nineSeconds} {
		playMet(t, func(f field) {
			first := f.held()
			plain := f.inLine(withShared)
			time.Sleep(ms)
			differs := f.inLine(withShared, option)
			time.Sleep(ms)
			f.unlock(first)
			f.within(plain, 10*ms)
			f.within(differs, 10*ms)
			assert.Equal(f, 2, f.entries("lock"))
			f.unlock(plain)
			f.unlock(differs)
		})
	}
}

// A Lock that waits for the end of its own hold does not shorten the lock delay of that hold.
func TestLockOfAHeldReaderKeepsItsLockDelay(t *testing.T) {
	play(t, func(f field) {
		m := f.locks(patient(withShared, withLockDelay(20*sec))...)
		end := m.Until()
		noError(f, m.Lock()) // Lock waits until the hold of the Mutex is over
		assert.False(f, time.Now().Before(end))
		f.unlock(m)
		synctest.Wait()
		erred(f, f.tries()) // the keys of the first hold stay, because it was not unlocked
		time.Sleep(21 * sec)
		f.obtains()
	})
}
