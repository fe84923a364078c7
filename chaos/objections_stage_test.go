package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

const (
	// sceneLock is the lock of every scene.
	sceneLock = "objection"

	// tolerance is how much later than the next holder came the former one may be
	// told: what a busy machine makes late, and more than any drift here. Where looks
	// are made until then (within), a machine that stalls does not use it up.
	tolerance = 250 * time.Millisecond

	// soon is how long something may take that needs no waiting.
	soon = 3 * time.Second

	// prompt is how long a call may take that waits for no node: less than the node
	// deadline that frozenMinority gives this library, and than redsync's wait, 5 s.
	prompt = 4 * time.Second

	// scenePatience bounds what must happen for a scene to go on.
	scenePatience = 20 * time.Second
)

// A stage is what one scene with one library is played on.
type stage struct {
	t       *testing.T
	accused accused
	servers []*realredis.Server
	clocks  []*nodeClock // those of the servers; nil where nobody sets them
}

// newStage starts the servers, with clocks that can be set if clocks is true.
func newStage(t *testing.T, a accused, clocks bool) *stage {
	t.Helper()
	s := &stage{t: t, accused: a}
	if !clocks {
		s.servers = realredis.Start(t, a.nodes)
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
	s.t.Helper()
	dir := s.t.TempDir()
	clock, err := newNodeClock(library, dir)
	if err != nil {
		s.t.Fatal(err)
	}
	server, err := realredis.LaunchWith(dir, clock.env())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		server.Kill()
		clock.tidy(server.Pid())
	})
	s.servers, s.clocks = append(s.servers, server), append(s.clocks, clock)
}

// jump sets the clocks of servers first to last-1, which are right, forward or back.
func (s *stage) jump(first, last int, by time.Duration) {
	s.t.Helper()
	for i := first; i < last; i++ {
		if err := s.clocks[i].step(by); err != nil {
			s.t.Fatal(err)
		}
		s.until("the clock of a server is set", func() bool {
			reply := s.do(i, "time").([]any)
			seconds, _ := strconv.ParseInt(reply[0].(string), 10, 64)
			off := time.Until(time.Unix(seconds, 0)) - by
			return off.Abs() < 10*time.Second
		})
	}
}

// some is n of five servers, or the one.
func (s *stage) some(n int) int { return min(n, s.accused.nodes) }

func (s *stage) quorum() int { return s.accused.nodes/2 + 1 }

func (s *stage) addrs() []string {
	var addrs []string
	for _, server := range s.servers {
		addrs = append(addrs, server.Addr())
	}
	return addrs
}

// detours puts one between the servers and whoever uses the addresses returned.
func (s *stage) detours() (detours []*detour, addrs []string) {
	s.t.Helper()
	for _, server := range s.servers {
		d := newDetour(s.t, server.Addr())
		detours, addrs = append(detours, d), append(addrs, d.addr())
	}
	return detours, addrs
}

// party opens the library, as a process whose connections are open.
func (s *stage) party(addrs []string, set setting) party {
	s.t.Helper()
	p, err := s.accused.open(addrs, set)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.Close)
	if err := warm(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// warm lets a fault meet what it is meant for: connections are open, scripts are
// loaded. On a busy machine an answer may be too late, which is no matter here.
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

// lock acquires the lock, and waits until so many nodes have it.
func (s *stage) lock(p party, nodes int) grip {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	g, err := p.Lock(ctx, sceneLock)
	if err != nil {
		s.t.Fatalf("Lock: %v", err)
	}
	s.until("the nodes have the key", func() bool { return s.holding() >= nodes })
	return g
}

// lockBriefly is lock on all nodes where the expiry is short: on a machine that has
// stalled the keys may be gone again.
func (s *stage) lockBriefly(p party) grip {
	s.t.Helper()
	g := s.lock(p, 0)
	within(short/4, func() bool { return s.holding() == s.accused.nodes })
	return g
}

// next waits for the lock, as who comes next does.
func (s *stage) next(p party, limit time.Duration) (grip, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	return p.Lock(ctx, sceneLock)
}

// mustNext is next where the lock must become free.
func (s *stage) mustNext(p party) grip {
	s.t.Helper()
	g, err := s.next(p, scenePatience)
	if err != nil {
		s.t.Fatalf("the next holder: %v", err)
	}
	return g
}

func (s *stage) do(i int, args ...any) any {
	s.t.Helper()
	v, err := s.servers[i].Do(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *stage) has(i int) bool { return s.hasOf(i, sceneLock) }

func (s *stage) hasOf(i int, name string) bool {
	v, err := s.servers[i].Do("exists", s.accused.key(name))
	return err == nil && v == int64(1)
}

// holding counts the servers that have the key of the lock.
func (s *stage) holding() int { return s.holdingOf(sceneLock) }

func (s *stage) holdingOf(name string) int {
	count := 0
	for i := range s.servers {
		if s.hasOf(i, name) {
			count++
		}
	}
	return count
}

// longestLook is the most that counts of the time between two looks of within.
const longestLook = 50 * time.Millisecond

// within waits for condition, at most for limit, and returns for how long it has waited.
// A machine that stalls, or a condition that takes its time, does not use up the limit:
// it is some looks at least.
func within(limit time.Duration, condition func() bool) (waited time.Duration, ok bool) {
	for last := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		ok = condition()
		now := time.Now()
		waited += min(now.Sub(last), longestLook)
		last = now
		if ok || waited >= limit {
			return waited, ok
		}
	}
}

func (s *stage) until(what string, condition func() bool) {
	s.t.Helper()
	if _, ok := within(scenePatience, condition); !ok {
		s.t.Fatalf("not after %v: %s", scenePatience, what)
	}
}

// A verdict is how a scene ends, or is expected to.
type verdict string

const (
	// kept: the lock did what it is there for.
	kept verdict = "kept"
	// lost: the lock was lost, and its holder was told before anything could
	// happen: within the tolerance.
	lost verdict = "lost"
	// broken: two holders, keys left behind, no lock in time, a late write.
	broken verdict = "broken"
	// varies: it depends on timing. It is expected, and never found.
	varies verdict = "varies"
	// unplayed: the scene does not apply.
	unplayed verdict = "n/a"
)

// verdicts are all that a document may state.
var verdicts = []verdict{kept, lost, broken, varies, unplayed}

// A finding is what a scene came to.
type finding struct {
	verdict verdict
	saw     string
}

func (f finding) String() string { return fmt.Sprintf("**%s**: %s", f.verdict, f.saw) }

func found(v verdict, format string, args ...any) finding {
	return finding{v, fmt.Sprintf(format, args...)}
}

// seconds is d as the table has it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// toldWithin returns after which wait the holder of g was told that it is lost, if it was.
func toldWithin(g grip, limit time.Duration) (waited time.Duration, ok bool) {
	ended := g.Lost()
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
	// persistence is for how long somebody else tries to get a lock that is held.
	persistence = time.Second
	// disbelief is how long a scene watches two holders.
	disbelief = 3 * time.Second
)

// contest lets b try to get the lock that a holds.
func (s *stage) contest(a grip, b party) finding {
	s.t.Helper()
	var second grip
	_, got := within(persistence, func() bool {
		g, err := b.TryLock(s.t.Context(), sceneLock)
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

// both watches a holder and one who has acquired the lock beside it.
func (s *stage) both(a, second grip) finding {
	s.t.Helper()
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
	if a.Token() != 0 {
		f.saw += ", with tokens in order"
		if second.Token() <= a.Token() {
			s.t.Errorf("the second holder's token is %d, the first one's %d", second.Token(), a.Token())
		}
	}
	return f
}

// gone looks that no key of the lock is left.
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
