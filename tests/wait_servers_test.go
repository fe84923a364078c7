package redsync_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests waiting on real servers, also for Redis users with few permissions.

// soon is far less than the retry delay of a patient waiter, and far more than a busy machine needs.
const soon = minute

// denies matches what servers answer to a user who lacks a permission. The last two come from scripts, before Redis 7.2
// and since.
const denies = "NOPERM|can't run this command|ACL failure in script"

// denying returns the nodes that r was told of because they deny wake-ups.
func denying(t *testing.T, r *redsynctest.Recorder) (nodes []int) {
	t.Helper()
	for _, u := range redsynctest.Events[observe.WakeUpDenied](r) {
		require.Regexp(t, denies, u.Err.Error())
		nodes = append(nodes, u.Node)
	}
	slices.Sort(nodes)
	return nodes
}

// usersOf returns a process whose Redis user has these ACL rules on each server.
func usersOf(t *testing.T, servers []*realredis.Server, rules func(i int) []string) *redsync.Redsync {
	t.Helper()
	var pools []pool.Pool
	for i, s := range servers {
		args := []any{"acl", "setuser", "locker", "reset", "on", ">secret"}
		for _, rule := range rules(i) {
			args = append(args, rule)
		}
		realredis.Must(t, s, args...)
		c := redis.NewClient(&redis.Options{
			Addr: s.Addr(), Username: "locker", Password: "secret",
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = c.Close() })
		pools = append(pools, pool.New(c))
	}
	rs := redsync.New(pools...)
	closesSoon(t, rs)
	return rs
}

// processAsOn returns a process whose user has these rules on each server, with long node deadlines.
func processAsOn(t *testing.T, servers []*realredis.Server, rules func(i int) []string) *redsync.Redsync {
	t.Helper()
	return closed(t, usersOf(t, servers, rules))
}

// processAs returns a process whose Redis user has these ACL rules.
func processAs(t *testing.T, servers []*realredis.Server, rules []string, options ...redsync.Option) *redsync.Redsync {
	t.Helper()
	rs := usersOf(t, servers, func(int) []string { return rules })
	return rs.With(append(options, withExpiry(40*sec), redsync.WithTimeoutFactor(0.2))...)
}

// smallestACL has the rules that a process needs to lock "lock" and to wait for it.
var smallestACL = []string{
	"~lock", "~{lock}:queue", "resetchannels", "&redsync:*",
	"+set", "+evalsha", "+eval", "+get", "+del", // locks
	"+pttl", "+time", "+pexpire", // queues
	"+publish", "+subscribe", // wake-ups
}

// plainACL has the rules that a lock needs if nobody waits for it.
var plainACL = []string{"~lock", "resetchannels", "+set", "+evalsha", "+eval", "+get", "+del", "+pttl", "+pexpire"}

// passes lets a lock pass from process a to process b, which waits with these options. It returns how long that took,
// or what went wrong.
func passes(t *testing.T, a, b *redsync.Redsync, options ...redsync.Option) (took time.Duration, err error) {
	t.Helper()
	failed := func(what string, ok bool, e error) bool {
		if !ok && err == nil {
			err = fmt.Errorf("%s: %w", what, e)
		}
		return err != nil
	}
	does := func(what string, do func() (bool, error)) bool { ok, e := do(); return failed(what, ok, e) }
	m := a.NewMutex("lock", options...)
	if e := m.TryLock(); failed("TryLock", e == nil, e) {
		return 0, err
	}
	time.Sleep(5 * ms) //nolint:forbidigo // so that there is something to extend
	if does("extend", m.Extend) || does("valid", m.Valid) {
		return 0, err
	}
	ctx := limited(t, soon)
	waiter, done, start := b.NewMutex("lock", options...), make(chan error, 1), time.Now()
	go func() { done <- waiter.LockContext(ctx) }()
	time.Sleep(50 * ms) //nolint:forbidigo // real servers
	if does("unlock", m.Unlock) {
		return 0, err
	}
	if e := <-done; failed("the waiter", e == nil, e) {
		return 0, err
	}
	took = time.Since(start)
	does("the waiter's unlock", waiter.Unlock)
	return took, err
}

// unwoken is the shortest time after which a waiter tries again without being woken.
const unwoken = 490 * ms

// empties flushes servers, of their scripts as well.
func empties(t *testing.T, servers []*realredis.Server) {
	t.Helper()
	for _, s := range servers {
		realredis.Must(t, s, "flushall")
		realredis.Must(t, s, "script", "flush")
	}
}

// awaitAnswers waits until every server answers a command with want. The last servers may do so long after a quorum
// does.
func awaitAnswers(t *testing.T, servers []*realredis.Server, want int64, command ...any) {
	t.Helper()
	for _, s := range servers {
		require.Eventually(t, func() bool {
			v, err := s.Do(command...)
			return err == nil && v == want
		}, soon, ms)
	}
}

func TestWaitingWithTheSmallestACL(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.Start(t, 3)
	log := &redsynctest.Recorder{}
	a := processAs(t, servers, smallestACL, recordsTo(log))
	b := processAs(t, servers, smallestACL, recordsTo(log))
	for _, mode := range modes {
		woken := false
		for i := 0; i < 3 || !woken && i < 20; i++ {
			took, err := passes(t, a, b, patient(mode...)...)
			noError(t, err)
			woken = woken || took < unwoken
		}
		assert.True(t, woken)
		assert.Empty(t, denying(t, log))
		awaitAnswers(t, servers, 0, "dbsize")
	}
	for _, rule := range smallestACL {
		if rule == "resetchannels" {
			continue
		}
		t.Run("not without "+rule, func(t *testing.T) {
			empties(t, servers)
			log := &redsynctest.Recorder{}
			rules := slices.DeleteFunc(slices.Clone(smallestACL), func(r string) bool { return r == rule })
			a := processAs(t, servers, rules, recordsTo(log))
			b := processAs(t, servers, rules, recordsTo(log))
			failed := false
			for i := 0; i < 10 && !failed; i++ { // on a busy machine the waiter may call too late to wait
				took, err := passes(t, a, b, patient(withFair, redsync.WithPriority(min(i, 1)))...)
				failed = err != nil || took >= unwoken || len(denying(t, log)) > 0
			}
			assert.True(t, failed) // the fair lock works without this rule, so the rule is not needed
		})
	}
}

// With the rules that docs/permissions.md begins with, a node denies nothing but what the page says.
func TestTheRulesOfThePageDenyNothing(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	line := regexp.MustCompile(`(?m)^ACL SETUSER locker on >PASSWORD (.*)$`).FindStringSubmatch(read(t, "../docs/permissions.md"))
	require.NotNil(t, line)
	rules := strings.Fields(strings.ReplaceAll(line[1], "app:", "lock"))
	servers := realredis.Start(t, 3)
	a, b := processAs(t, servers, rules), processAs(t, servers, rules)
	noError(t, a.Ping(t.Context()))
	for _, options := range []opts{
		nil,
		{withFair, withFencing},
		{withShared},
		{onePermit, withFair},
		{withMinHold(100 * ms)}, // the last one, because it keeps the lock for a while
	} {
		_, err := passes(t, a, b, options...)
		noError(t, err)
	}
	holder := locked(t, a.NewMutex("lock", withFencing, withOwner("a")))
	erred(t, b.NewMutex("lock", withOwner("b")).TryLock()) // it has asked for the owner
	for _, m := range []*redsync.Mutex{
		b.NewMutex("lock"), b.NewMutex("lock", twoPermits), b.NewMultiMutex([]string{"lock", "lock2"}),
	} {
		s, err := m.Inspect(t.Context())
		noError(t, err)
		for _, n := range s.Nodes {
			noError(t, n.Err)
			assert.False(t, n.Denied)
		}
	}
	unlocks(t, holder)
	several := locked(t, a.NewMultiMutex([]string{"lock1", "lock2"}, withFair))
	confirmed(t, several.Unlock)
	awaitAnswers(t, servers, 1, "dbsize") // the fencing register
	for _, s := range servers {
		for _, entry := range realredis.Must(t, s, "acl", "log").([]any) {
			assert.Contains(t, []any{"client", "client|setinfo"}, entry.(map[any]any)["object"], "go-redis tells its name")
		}
	}
}

// A process can lock even if its Redis user may not use the queues, or may not be woken.
func TestWaitingWithoutPermission(t *testing.T) {
	without := func(rules ...string) []string {
		return slices.DeleteFunc(slices.Clone(smallestACL), func(r string) bool { return slices.Contains(rules, r) })
	}
	plain := func(more ...string) []string { return append(slices.Clone(plainACL), more...) }
	each, twice := []int{0, 1, 2}, []int{0, 0, 1, 1, 2, 2}
	for name, c := range map[string]struct {
		rules []string
		told  []int  // the denied nodes that the observer is told of, once for each reason
		fair  string // the error of a fair lock; "" if it works
	}{
		"not the keys":            {plain("+subscribe", "&redsync:*", "+time"), each, "NOPERM"},
		"nothing but plain locks": {plain(), twice, "NOPERM"},
		"not the commands":        {plain("~*", "+subscribe", "&redsync:*"), each, denies},
		"not SUBSCRIBE":           {without("+subscribe"), each, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 3)
			log, text := &redsynctest.Recorder{}, &safeBuffer{}
			options := opts{withRetryDelay(100 * ms), forever}
			logger := redsync.WithLogger(slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelWarn})))
			a, b := processAs(t, servers, c.rules, options...), processAs(t, servers, c.rules, append(options, recordsTo(log), logger)...)
			// An attempt does not wait for all nodes, so a denial may show only at a later attempt.
			for i := 0; i < 3 || len(denying(t, log)) < len(c.told) && i < 30; i++ {
				_, err := passes(t, a, b)
				noError(t, err)
			}
			awaitAnswers(t, servers, 0, "exists", "lock")
			assert.Equal(t, 3, strings.Count(text.String(), `msg="redsync: the node does not let waiters be woken"`), text.String())
			assert.Equal(t, c.told, denying(t, log))

			if c.fair == "" {
				_, err := passes(t, a, b, withFair)
				noError(t, err)
				return
			}
			_, err := passes(t, a, b, withFair, withTries(3))
			require.Regexp(t, c.fair, err)
			errorIs(t, err, redsync.ErrNoQuorum)
		})
	}
}

// A safeBuffer is written and read by several goroutines.
type safeBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
