package redsync_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows what observers and the log are told of a node that restarts under pool.WithRestartGuard.

// rounding bounds the error of the uptime that a node reports.
const rounding = sec

// A process that only finds the lock taken says that a restarted node is up again when the guard has ended, and not
// before.
func TestProcessThatNeverGetsTheLockSaysThatANodeIsUpAgain(t *testing.T) {
	testlength.FromGate(t)
	type setting struct {
		kind    lockKind
		options opts
		guard   time.Duration
	}
	settings := []setting{
		{lockKinds[0], opts{withFencing}, fencedQuarantine},
		{lockKinds[0], opts{withFair}, quarantine},
	}
	for _, kind := range lockKinds {
		settings = append(settings, setting{kind, nil, quarantine})
	}
	for i, s := range settings {
		playAs(t, fmt.Sprint(s.kind.column, i), func(f field) {
			r := &redsynctest.Recorder{}
			a := f.veteran(guards[true]...)
			b := f.veteran(guards[true]...).With(recordsTo(r))
			holder := s.kind.rival(a, append(s.options, withWatchdog)...)
			standby := s.kind.lock(b, s.options...)
			locked(f, holder)
			sleepToTheSecond()
			f.reboot(true, 2)
			restart := time.Now()
			wake(a)
			wake(b)
			erred(f, standby.TryLock()) // node 2 grants it
			down, up := toldOfNodes(r)
			require.Len(f, down, 1)
			require.Empty(f, up)
			f.confirms(holder.Unlock())
			noError(f, holder.Lock()) // on node 2, too
			for len(up) == 0 && time.Since(restart) < s.guard+rounding {
				erred(f, standby.TryLock())
				time.Sleep(100 * ms)
				down, up = toldOfNodes(r)
				require.Empty(f, down)
			}
			require.Len(f, up, 1)
			assert.GreaterOrEqual(f, time.Since(restart), s.guard)
			erred(f, standby.TryLock())
			f.unlock(holder)
		})
	}
}

// A node that goes down and restarts is up again when its guard has ended. Until then it answers extensions, releases and
// questions, which prove nothing. The log says why the node is down by now.
func TestRestartedNodeIsNotUpAgainBeforeItsGuardHasEnded(t *testing.T) {
	parallelComputing(t)
	for name, empty := range map[string]bool{"empty": true, "with its keys": false} {
		playAs(t, name, func(f field) {
			r, book := &redsynctest.Recorder{}, newLogbook()
			rs := f.veteran(guards[true]...).With(recordsTo(r), book.option())
			m := locked(f, rs.NewMutex("lock"))
			sleepToTheSecond()
			f.nodes[2].Kill()
			time.Sleep(ms)
			uses := func() {
				f.extends(m)
				f.confirms(m.Valid())
				other := locked(f, rs.NewMutex("other"))
				synctest.Wait()
				f.confirms(other.Unlock())
				time.Sleep(99 * ms)
			}
			for range 30 {
				uses()
			}
			sleepToTheSecond()
			f.nodes[2].Restart(empty)
			restart := time.Now()
			down, up := toldOfNodes(r)
			require.Len(f, down, 1)
			for len(up) == 0 && time.Since(restart) < quarantine+rounding {
				uses()
				down, up = toldOfNodes(r)
				require.Empty(f, down)
			}
			require.Len(f, up, 1)
			assert.GreaterOrEqual(f, time.Since(restart), quarantine)
			for range 20 {
				uses()
			}
			down, up = toldOfNodes(r)
			assert.Empty(f, down)
			assert.Empty(f, up)
			lines := book.linesOf("node is down", "node is up again")
			require.Len(f, lines, 3)
			assert.Contains(f, lines[0], " error=")
			assert.NotContains(f, lines[0], "restart guard")
			assert.Regexp(f, `level=WARN .* for=10(\.\d)?s error="its server started [67](\.\d+)?s ago, and the restart guard \(8s \+ 1\.082s\) ignores it for another [123]\.\d+s"$`, lines[1])
			assert.Regexp(f, `level=INFO .* down=1[2-4](\.\d)?s$`, lines[2])
			f.unlock(m)
		})
	}
}

// The first lock after the guard has ended says no more that the node is down: the node may answer after the others.
func TestLogOfANodeWhoseGuardHasEnded(t *testing.T) {
	play(t, func(f field) {
		book := newLogbook()
		u := user{f.T, f.veteran(guards[true]...).With(book.option())}
		f.reboot(true, 2)
		u.uses()
		time.Sleep(15 * time.Second)
		f.nodes[2].On("set", 1, embedded.Fault{Delay: 10 * ms})
		u.uses()
		time.Sleep(time.Second)
		u.uses()
		assert.Equal(f, map[string]int{"WARN redsync: node is down": 1, "INFO redsync: node is up again": 1}, book.above())
	})
}
