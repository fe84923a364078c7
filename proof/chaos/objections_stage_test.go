package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
)

const (
	// sceneLock is the lock of every scene.
	sceneLock = "objection"

	// tolerance is how late the former holder may be told of its loss. It counts from when
	// the next holder has come. It allows for a busy machine, and is more than any drift
	// here. If a scene waits with within, a machine that stalls does not use it up.
	tolerance = 250 * time.Millisecond

	// soon is how long an operation that need not wait may take.
	soon = 3 * time.Second

	// prompt is how long a call that waits for no node may take. It is less than the node
	// deadline that frozenMinority gives this library, and less than redsync's wait of 5 s.
	prompt = 4 * time.Second

	// scenePatience bounds the wait for anything that a scene needs to go on.
	scenePatience = 20 * time.Second
)

// A stage has the servers on which one scene is played with one library.
type stage struct {
	*testing.T
	accused accused
	servers []*realredis.Server
	clocks  []*nodeClock // the clocks of the servers; nil if the scene does not set clocks
	fresh   time.Time    // nobody holds a lock before, and no server of a party with Guard restarts before
}

// newStage starts the servers, with clocks that can be set if clocks is true.
func newStage(t *testing.T, a accused, clocks bool) *stage {
	s := &stage{T: t, accused: a}
	if !clocks {
		s.servers = realredis.Start(t, a.nodes)
		s.fresh = time.Now().Add(3 * time.Second).Round(0) // uptimes are in whole seconds
		return s
	}
	library := needFakeTime(t)
	for range a.nodes {
		s.startWithClock(library)
	}
	return s
}

// startWithClock starts a server whose clock can be set.
func (s *stage) startWithClock(library string) {
	dir := s.TempDir()
	clock, err := newNodeClock(library, dir)
	require.NoError(s, err)
	server, err := realredis.LaunchWith(dir, clock.env())
	require.NoError(s, err)
	s.Cleanup(func() {
		server.Kill()
		clock.tidy(server.Pid())
	})
	s.servers, s.clocks = append(s.servers, server), append(s.clocks, clock)
}

// jump sets the clocks of servers first to last-1 forward or back. The clocks must be right before.
func (s *stage) jump(first, last int, by time.Duration) {
	for i := first; i < last; i++ {
		require.NoError(s, s.clocks[i].step(by))
		s.until("the clock of a server is set", func() bool {
			reply := s.do(i, "time").([]any)
			seconds, _ := strconv.ParseInt(reply[0].(string), 10, 64)
			off := time.Until(time.Unix(seconds, 0)) - by
			return off.Abs() < 10*time.Second
		})
	}
}

// some returns n, or 1 for a library that has only one server.
func (s *stage) some(n int) int { return min(n, s.accused.nodes) }

func (s *stage) quorum() int { return s.accused.nodes/2 + 1 }

func (s *stage) addrs() []string { return addrsOf(s.servers) }

func addrsOf(servers []*realredis.Server) (addrs []string) {
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// detours puts a detour in front of each server. A party that uses the returned addresses goes through them.
func (s *stage) detours() (detours []*detour, addrs []string) {
	for _, server := range s.servers {
		d := newDetour(s.T, server.Addr())
		detours, addrs = append(detours, d), append(addrs, d.addr())
	}
	return detours, addrs
}

// party opens the library and its connections, as one process.
func (s *stage) party(addrs []string, set setting) party {
	if set.Guard {
		set.Fresh = s.fresh
		time.Sleep(time.Until(s.fresh))
	}
	p, err := s.accused.open(addrs, set)
	require.NoError(s, err)
	s.Cleanup(p.Close)
	require.NoError(s, warm(s.Context(), p))
	return p
}

// parties opens the library twice.
func (s *stage) parties(a setting, b ...setting) (party, party) {
	return s.party(s.addrs(), a), s.party(s.addrs(), append(b, a)[0])
}

// patience returns the context of calls that a scene needs to go on.
func (s *stage) patience() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), scenePatience)
	s.Cleanup(cancel)
	return ctx
}

// warm opens connections and loads scripts, so that a later fault hits the commands of the
// scene, and not these preparations. An answer that comes too late on a busy machine does no
// harm here.
func warm(ctx context.Context, p party) error {
	ctx, cancel := context.WithTimeout(ctx, scenePatience)
	defer cancel()
	var err error
	for rounds := 0; rounds < 2 && ctx.Err() == nil; {
		var g grip
		if g, err = p.Lock(ctx, "a name of its own"); err == nil {
			err = g.Unlock(ctx)
		}
		if err == nil {
			rounds++
		}
	}
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

// lock acquires the lock, and waits until its key is on the given number of nodes or more.
func (s *stage) lock(p party, nodes int) grip {
	g, err := p.Lock(s.patience(), sceneLock)
	require.NoError(s, err)
	s.until("the nodes have the key", func() bool { return s.holding() >= nodes })
	return g
}

// lockBriefly acquires the lock for a short expiry, and waits briefly until all nodes have the key.
// It does not fail if some lack it, because on a machine that has stalled some keys may have expired.
func (s *stage) lockBriefly(p party) grip {
	g := s.lock(p, 0)
	within(short/4, func() bool { return s.holding() == s.accused.nodes })
	return g
}

// next waits for the lock as the next holder, for limit at most.
func (s *stage) next(p party, limit time.Duration) (grip, error) {
	ctx, cancel := bounded(s.Context(), limit)
	defer cancel()
	return p.Lock(ctx, sceneLock)
}

// mustNext waits for the lock as the next holder. It fails the test if p does not get the lock.
func (s *stage) mustNext(p party) grip {
	g, err := s.next(p, scenePatience)
	require.NoError(s, err)
	return g
}

func (s *stage) do(i int, args ...any) any {
	return realredis.Must(s, s.servers[i], args...)
}

func (s *stage) has(i int) bool {
	v, err := s.servers[i].Do("exists", s.accused.key(sceneLock))
	return err == nil && v == int64(1)
}

// holding counts the servers that have the key of the lock.
func (s *stage) holding() (count int) {
	for i := range s.servers {
		if s.has(i) {
			count++
		}
	}
	return count
}

// On a machine that stands still within looks several times, and a context of bounded does not end.
var within, bounded = stall.Within, stall.Timeout

func (s *stage) until(what string, condition func() bool) {
	if _, ok := within(scenePatience, condition); !ok {
		s.Fatalf("after %v this was still not so: %s", scenePatience, what)
	}
}

// A verdict is the outcome of a scene, or the expected outcome.
type verdict string

const (
	// kept: the lock did what it is there for.
	kept verdict = "kept"
	// lost: the lock was lost, and its holder was told within the tolerance, before any
	// harm was done.
	lost verdict = "lost"
	// broken: two holders, keys left behind, no lock in time, a late write.
	broken verdict = "broken"
	// varies: the outcome depends on timing. Only documents say this; no scene ends with it.
	varies verdict = "varies"
	// unplayed: the scene does not apply.
	unplayed verdict = "n/a"
)

// A finding is the verdict of a scene, with what was seen.
type finding struct {
	verdict verdict
	saw     string
}

func (f finding) String() string { return fmt.Sprintf("**%s**: %s", f.verdict, f.saw) }

func found(v verdict, format string, args ...any) finding {
	return finding{v, fmt.Sprintf(format, args...)}
}

// seconds formats d as the tables do.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// toldWithin waits until the holder of g is told that g is lost, for limit at most. It returns how long it has waited,
// and whether the holder was told.
func toldWithin(g grip, limit time.Duration) (waited time.Duration, ok bool) {
	ended := g.Lost
	return within(limit, func() bool {
		if ended == nil {
			return !g.Held()
		}
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

const (
	// persistence is how long another process tries to get a lock that is held.
	persistence = time.Second
	// disbelief is how long a scene watches two holders.
	disbelief = 3 * time.Second
)

// contest lets b try to get the lock that a holds.
func (s *stage) contest(a grip, b party) finding {
	var second grip
	_, got := within(persistence, func() bool {
		g, err := b.TryLock(s.Context(), sceneLock)
		second = g
		return err == nil
	})
	switch {
	case !got && a.Held():
		return found(kept, "one holder")
	case !got:
		return found(lost, "its holder was told; nobody got it in %s", seconds(persistence))
	}
	return s.both(a, second)
}

// both watches two holders of the lock: second acquired the lock although a had it.
func (s *stage) both(a, second grip) finding {
	overlap, ok := toldWithin(a, disbelief)
	switch {
	case overlap <= tolerance:
		return found(lost, "the first was told at once")
	case !second.Held():
		return found(broken, "two had it, and both lost it")
	}
	length := seconds(overlap)
	if !ok {
		length = "more than " + seconds(disbelief)
	}
	f := found(broken, "two holders for %s", length)
	if a.Token != 0 {
		f.saw += ", with tokens in order"
		if second.Token <= a.Token {
			s.Errorf("the second holder's token %d is not above the first holder's %d", second.Token, a.Token)
		}
	}
	return f
}

// gone waits for a while until no key of the lock is left, and finds out whether any is.
func (s *stage) gone() finding {
	if _, ok := within(soon, func() bool { return s.holding() == 0 }); ok {
		return found(kept, "no key left")
	}
	return found(broken, "%s left", countKeys(s.holding()))
}

func countKeys(n int) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}
