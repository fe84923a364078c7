package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/notice"
)

var errDown = errors.New("3 of 5 nodes failed")

// A log is a logger that keeps its lines, without their times and the prefix of their messages.
type log struct {
	*slog.Logger
	text strings.Builder
}

func newLog() *log {
	l := &log{}
	l.Logger = slog.New(slog.NewTextHandler(&l.text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return l
}

// lines returns the lines since the last call.
func (l *log) lines() (all []string) {
	synctest.Wait()
	for line := range strings.Lines(l.text.String()) {
		line = strings.Replace(strings.TrimSuffix(line, "\n"), `msg="redsync: `, `"`, 1)
		all = append(all, strings.TrimPrefix(line, "level="))
	}
	l.text.Reset()
	return all
}

// A scene is a Journal with the calls that wait.
type scene struct {
	*Journal
	waits map[string]int // their tries, by name
}

func play(t *testing.T, f func(j *scene, a, b *log)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		waits := make(map[string]int)
		f(&scene{New(&notice.Queue{}, func() map[string]int { return waits }), waits}, newLog(), newLog())
	})
}

// fails is an attempt of a call that waits.
func (j *scene) fails(l *log, name string, tries int) {
	j.waits[name] = tries
	j.NoQuorum(l.Logger, Trouble{Name: name, Tries: tries, Err: errDown})
}

// A holding is a lock that is held while it is true.
type holding bool

func (h *holding) IsHeld() bool { return bool(*h) }

func held() *holding {
	h := holding(true)
	return &h
}

func TestAStateIsSaidWhenItBeginsAndEveryTenSecondsAndWhenItEnds(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		for i := range 250 {
			j.fails(a, "x", i+1)
			time.Sleep(100 * time.Millisecond)
		}
		held, brief := held(), held()
		j.NoQuorum(a.Logger, Trouble{Name: "held", Held: held, Err: errDown})
		j.NoQuorum(a.Logger, Trouble{Name: "brief", Held: brief, Err: errDown})
		j.Answered(a.Logger, Extends, brief, time.Now().Add(-time.Hour))
		time.Sleep(10 * time.Second)
		j.fails(a, "y", 1)
		delete(j.waits, "x")
		*held = false
		time.Sleep(time.Hour) // nobody asks
		j.fails(a, "y", 2)
		j.Answered(a.Logger, Locks, nil, time.Now())
		assert.Equal(t, []string{
			`WARN "no quorum" lock=x tries=1 error="3 of 5 nodes failed"`,
			`WARN "no quorum" for=10s lock=x tries=101 error="3 of 5 nodes failed"`,
			`WARN "no quorum" for=20s lock=x tries=201 error="3 of 5 nodes failed"`,
			`WARN "no quorum" for=35s names_waiting=2 locks_unextended=1 error="3 of 5 nodes failed"`,
			`WARN "no quorum" for=1h0m35s lock=y tries=2 error="3 of 5 nodes failed"`,
			`INFO "a quorum answers again" after=1h0m35s`,
		}, a.lines())
		j.Answered(a.Logger, Locks, nil, time.Now())
		assert.Empty(t, a.lines())
	})
}

// An operation that began while a quorum answered proves nothing of what came after. Nor does an operation of another kind
// than those that the nodes deny.
func TestAnEarlierOrAnotherOperationIsNoEnd(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		for range 25 {
			j.NoQuorum(a.Logger, Trouble{Op: Unlocks, Denied: true, Err: errDown})
			j.Answered(a.Logger, Locks, nil, time.Now())
			time.Sleep(time.Second)
		}
		assert.Len(t, a.lines(), 3)
		j.fails(a, "x", 1)
		j.Answered(a.Logger, Unlocks, nil, time.Now())
		assert.Equal(t, []string{`INFO "a quorum answers again" after=25s`}, a.lines())
		time.Sleep(Every)
		j.NoQuorum(a.Logger, Trouble{Op: Unlocks, Denied: true, Err: errDown}) // and never again
		for range 2 * deniedFor / time.Second {
			j.Answered(a.Logger, Locks, nil, time.Now())
			time.Sleep(time.Second)
		}
		assert.Equal(t, []string{
			`WARN "no quorum" lock=x tries=1 error="3 of 5 nodes failed"`,
			`INFO "a quorum answers again" after=1m0s`,
		}, a.lines())
		start := time.Now()
		time.Sleep(time.Millisecond)
		j.fails(a, "x", 1)
		j.Answered(a.Logger, Locks, nil, start)
		assert.Len(t, a.lines(), 1)
	})
}

// A quorum and a node that come and go are said twice in 10 s at most.
func TestAStateThatComesAndGoesIsNoFlood(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		for range 200 { // for 20 s
			j.fails(a, "x", 1)
			j.NodeDown(a.Logger, 1, "redis-1:6379", 0, errDown)
			time.Sleep(50 * time.Millisecond)
			j.Answered(a.Logger, Locks, nil, time.Now())
			j.NodeUp(1, time.Second)
			time.Sleep(50 * time.Millisecond)
		}
		lines := a.lines()
		assert.Len(t, lines, 8)
		assert.ElementsMatch(t, []string{
			`WARN "no quorum" omitted=100 lock=x tries=1 error="3 of 5 nodes failed"`,
			`INFO "a quorum answers again" after=50ms`,
			`WARN "node is down" node=1 address=redis-1:6379 omitted=100 error="3 of 5 nodes failed"`,
			`INFO "node is up again" node=1 address=redis-1:6379 down=1s`,
		}, lines[4:])
	})
}

func TestANodeThatIsDownIsSaidAgainWhileLocksAreUsed(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		uses := func() {
			j.Answered(a.Logger, Locks, nil, time.Now())
			time.Sleep(time.Millisecond)
			for _, i := range []int{1, 4} {
				j.NodeDown(a.Logger, i, fmt.Sprintf("redis-%d:6379", i), 0, errDown)
			}
		}
		j.NodeDown(a.Logger, 1, "redis-1:6379", 2, errDown)
		j.NodeDown(a.Logger, 4, "redis-4:6379", 0, errDown)
		for range 12 {
			uses()
			time.Sleep(time.Second)
		}
		j.Answered(a.Logger, Locks, nil, time.Now()) // by others: node 4 is about to be up
		j.NodeUp(4, 12*time.Second)
		j.NodeUp(4, 12*time.Second)
		time.Sleep(time.Hour)
		uses()
		j.ForgetNodes()
		time.Sleep(time.Hour)
		uses()
		assert.Equal(t, []string{
			`WARN "node is down" node=1 address=redis-1:6379 omitted=2 error="3 of 5 nodes failed"`,
			`WARN "node is down" node=4 address=redis-4:6379 error="3 of 5 nodes failed"`,
			`WARN "node is down" node=1 address=redis-1:6379 for=10s error="3 of 5 nodes failed"`,
			`WARN "node is down" node=4 address=redis-4:6379 for=10s error="3 of 5 nodes failed"`,
			`INFO "node is up again" node=4 address=redis-4:6379 down=12s`,
			`WARN "node is down" node=1 address=redis-1:6379 for=1h0m12s error="3 of 5 nodes failed"`,
			`WARN "node is down" node=4 address=redis-4:6379 error="3 of 5 nodes failed"`,
			`WARN "node is down" node=1 address=redis-1:6379 error="3 of 5 nodes failed"`,
			`WARN "node is down" node=4 address=redis-4:6379 error="3 of 5 nodes failed"`,
		}, a.lines())
	})
}

// An aged error says how old it is. Without a time it is over.
type aged struct{ since time.Time }

func (aged) Error() string { return "0s old" }
func (a aged) At(now time.Time) error {
	if a.since.IsZero() {
		return nil
	}
	return errors.New(now.Sub(a.since).String() + " old")
}

// The lines say why a node is down by now, and times as they are when the line is written.
func TestANodeThatIsDownIsSaidAgainWithTheReasonOfNow(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		fails := func(address string, err error) { j.NodeDown(a.Logger, 1, address, 0, err) }
		fails("redis-1:6379", errDown) // another Redsync was told that it is down
		j.NodeDown(a.Logger, 1, "redis-1:6379", 0, errDown)
		for _, err := range []error{errDown, aged{time.Now()}, aged{time.Now()}, aged{}} {
			time.Sleep(Every)
			fails("redis-2:6379", err)
		}
		j.NodeUp(1, time.Minute)
		assert.Equal(t, []string{
			`WARN "node is down" node=1 address=redis-1:6379 error="3 of 5 nodes failed"`,
			`WARN "node is down" node=1 address=redis-2:6379 for=10s error="3 of 5 nodes failed"`,
			`WARN "node is down" node=1 address=redis-2:6379 for=20s error="20s old"`,
			`WARN "node is down" node=1 address=redis-2:6379 for=30s error="30s old"`,
			`INFO "node is up again" node=1 address=redis-2:6379 down=1m0s`,
		}, a.lines())
	})
}

// While no quorum answers, its lines name the nodes that are down.
func TestNodesHaveNoLinesBesideThoseOfTheQuorum(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		j.NodeDown(a.Logger, 1, "redis-1:6379", 0, errDown)
		for i := range 60 {
			j.fails(a, "x", i+1)
			time.Sleep(time.Second)
		}
		j.Answered(a.Logger, Locks, nil, time.Now())
		j.NodeUp(1, time.Minute)
		lines := a.lines()
		assert.Len(t, lines, 1+6+1+1)
		assert.Equal(t, 1, strings.Count(strings.Join(lines, "\n"), "node is down"))
	})
}

// The locks of one logger are used later than those of another. That logger says once what still lasts, and then its end.
func TestEachLoggerSaysAStateOnce(t *testing.T) {
	play(t, func(j *scene, a, b *log) {
		j.fails(a, "x", 1)
		j.NodeDown(a.Logger, 1, "redis-1:6379", 0, errDown)
		j.OneServer(a.Logger, [2]int{0, 2}, [2]string{"redis-0:6379", "redis-2:6379"}, "run")
		time.Sleep(5 * time.Second)
		for range 3 {
			j.fails(b, "y", 1)
		}
		assert.Len(t, a.lines(), 3)
		assert.ElementsMatch(t, []string{
			`WARN "no quorum" for=5s names_waiting=2 error="3 of 5 nodes failed"`,
			`WARN "node is down" node=1 address=redis-1:6379 for=5s error="3 of 5 nodes failed"`,
			`WARN "two nodes are one server, which counts once" nodes="[0 2]" addresses="[redis-0:6379 redis-2:6379]" run_id=run for=5s`,
		}, b.lines())
		time.Sleep(5 * time.Second)
		j.fails(a, "x", 2)
		j.Answered(b.Logger, Locks, nil, time.Now())
		j.NodeUp(1, time.Second)
		j.TwoServers([2]int{0, 2})
		want := []string{
			`WARN "no quorum" for=10s names_waiting=2 error="3 of 5 nodes failed"`,
			`INFO "a quorum answers again" after=10s`,
			`INFO "node is up again" node=1 address=redis-1:6379 down=1s`,
			`INFO "the two nodes are different servers again" nodes="[0 2]" addresses="[redis-0:6379 redis-2:6379]"`,
		}
		assert.Equal(t, want, a.lines())
		assert.Equal(t, want, b.lines())
		assert.Empty(t, j.loggers, "no logger is kept while all is well")
	})
}

func TestTwoNodesThatAreOneServerAreSaidAgainOnlyIfTheyWereTwo(t *testing.T) {
	play(t, func(j *scene, a, _ *log) {
		pair, addresses := [2]int{0, 2}, [2]string{"redis-0:6379", "redis-2:6379"}
		one := func() { j.OneServer(a.Logger, pair, addresses, "run") }
		one()
		for range 100 {
			j.Answered(a.Logger, Locks, nil, time.Now())
			time.Sleep(time.Second)
		}
		assert.Len(t, a.lines(), 1)
		one() // another Redsync was told TwoServers
		assert.Len(t, a.lines(), 1)
		for range 100 {
			j.TwoServers(pair)
			one()
			time.Sleep(10 * time.Millisecond)
		}
		assert.Len(t, a.lines(), 1)
		time.Sleep(10 * time.Second)
		j.Answered(a.Logger, Locks, nil, time.Now())
		assert.Len(t, a.lines(), 1, "how it is at last")
	})
}

func TestRarely(t *testing.T) {
	play(t, func(j *scene, a, b *log) {
		s := Subject{Message: "release given up", Node: 3}
		total, say := j.Rarely(a.Logger, s, 1, Every)
		assert.True(t, say)
		assert.Equal(t, 1, total)
		for range 50 {
			_, say = j.Rarely(a.Logger, s, 2, Every)
			assert.False(t, say)
		}
		_, say = j.Rarely(b.Logger, s, 1, Every)
		assert.True(t, say, "another logger")
		_, say = j.Rarely(a.Logger, Subject{Message: "release given up", Node: 4}, 1, Every)
		assert.True(t, say, "another node")
		time.Sleep(Every)
		total, say = j.Rarely(a.Logger, s, 1, Every)
		assert.True(t, say)
		assert.Equal(t, 101, total)
		lines := 0
		for range 100 {
			if _, say := j.Rarely(newLog().Logger, s, 1, Every); say {
				lines++
			}
		}
		assert.Equal(t, maxLoggers-1, lines)
	})
}

func TestCloseSaysWhatIsLeftAndNothingElse(t *testing.T) {
	play(t, func(j *scene, a, b *log) {
		j.fails(a, "x", 1)
		assert.Len(t, a.lines(), 1)
		left := Left{Node: 3, Address: "redis-3:6379", Releases: 10, Within: 8 * time.Second, Err: errDown}
		j.AddLeft(a.Logger, left)
		left.Within = time.Second
		j.AddLeft(a.Logger, left)
		j.AddLeft(b.Logger, left)
		for range 100 {
			j.AddLeft(newLog().Logger, left)
		}
		assert.Len(t, j.left, maxLoggers)
		j.Close()
		j.notices.Close(time.Second)
		assert.Equal(t, []string{
			`WARN "releases unconfirmed" node=3 address=redis-3:6379 releases=20 keys_expire_within=8s error="3 of 5 nodes failed"`,
		}, a.lines())
		assert.Len(t, b.lines(), 1)
		time.Sleep(time.Minute)
		j.fails(a, "x", 2)
		j.NodeDown(a.Logger, 1, "redis-1:6379", 0, errDown)
		j.NodeUp(1, 0)
		j.OneServer(a.Logger, [2]int{0, 2}, [2]string{}, "run")
		j.Answered(a.Logger, Locks, nil, time.Now())
		assert.Empty(t, a.lines())
	})
}
