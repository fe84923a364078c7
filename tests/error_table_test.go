package redsync_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file has a table of what the error of each operation matches, by cause. A test goes through each operation in
// each mode with each cause. A case that the table leaves out fails.

// An errorCase is one case: the Redsync and the Mutex under test, on five nodes.
type errorCase struct {
	field
	mode string
	more opts // of the cause
	m    *redsync.Mutex

	ctx    context.Context //nolint:containedctx // of the operation
	cancel context.CancelFunc
	hook   *atomic.Pointer[func()]     // of the pools
	inside func(context.Context) error // Do and Lead call it when they have the lock
}

// errorModes are the modes of the Mutex under test. With "joint", the set after has the nodes 0, 1 and 2.
var errorModes = map[string]opts{
	"plain": nil, "fair": {withFair}, "readers": {withShared}, "permits": {withPermits(1)},
	"several names": nil, "joint": nil,
}

// mutex makes the Mutex under test. Its expiry is shorter than the time after which a pool gives up a connection.
func (s *errorCase) mutex() {
	options := slices.Concat(opts{withExpiry(4 * sec), withTries(2)},
		errorModes[s.mode], s.more)
	if s.mode == "several names" {
		s.m = s.NewMultiMutex([]string{"lock", "other"}, options...)
		return
	}
	s.m = s.NewMutex("lock", options...)
}

// on makes a Redsync on these pools the one under test.
func (s *errorCase) on(pools []pool.Pool) {
	s.Redsync = redsync.New(pools...)
	if s.mode == "joint" {
		s.Redsync = redsync.NewJoint(pools, pools[:min(3, len(pools))])
	}
	s.closes(s.Redsync)
}

// empty deletes all keys of some nodes.
func (s *errorCase) empty(nodes ...int) {
	for _, i := range nodes {
		s.nodes[i].FlushAll()
	}
}

// rival deletes all keys of these nodes, and takes the lock for another process, rs.
func (s *errorCase) rival(rs *redsync.Redsync, nodes ...int) {
	s.empty(nodes...)
	options := opts{withExpiry(minute)}
	if s.mode == "permits" {
		options = append(options, onePermit)
	}
	locked(s, rs.NewMutex("lock", options...))
	sleep(ms)
}

// deny makes three nodes answer with an error until the end.
func (s *errorCase) deny(answer string) {
	for _, n := range s.nodes[:3] {
		n.On("set", 1<<20, embedded.Fault{Err: answer})
		n.On("evalsha", 1<<20, embedded.Fault{Err: answer})
	}
}

// errorOperations are the operations except Open. Each returns the error, and checks the boolean result. AdoptingDo is a
// Do of a Mutex that adopts the lock.
var errorOperations = map[string]func(s *errorCase) error{
	"Lock":    func(s *errorCase) error { return s.m.LockContext(s.ctx) },
	"TryLock": func(s *errorCase) error { return s.m.TryLockContext(s.ctx) },
	"Do":      func(s *errorCase) error { return s.m.Do(s.ctx, s.inside) },
	"TryDo": func(s *errorCase) error {
		if err := dos["TryDo"](s.m, s.ctx, s.inside); !errors.Is(err, errOthers) {
			return err
		}
		return nil
	},
	"Lead": func(s *errorCase) error {
		ctx, cancel := context.WithTimeout(s.ctx, 5*sec) // it campaigns until then
		defer cancel()
		return s.Lead(ctx, "lock", s.inside, slices.Concat(opts{withExpiry(4 * sec)},
			errorModes[s.mode], s.more)...)
	},
	"AdoptingDo": func(s *errorCase) error { return s.m.Do(s.ctx, s.inside) },
	"Extend":     func(s *errorCase) error { return s.truly(s.m.ExtendContext(s.ctx)) },
	"Valid":      func(s *errorCase) error { return s.truly(s.m.ValidContext(s.ctx)) },
	"Unlock":     func(s *errorCase) error { return s.truly(s.m.UnlockContext(s.ctx)) },
	"Ping":       func(s *errorCase) error { return s.With(s.more...).Ping(s.ctx) },
}

// truly returns err, and checks that ok is true if and only if err is nil.
func (s *errorCase) truly(ok bool, err error) error {
	assert.Equal(s, ok, err == nil, "%v, %v", ok, err)
	return err
}

// errorWords are the words of the table: what errors.Is or errors.As finds in err, in this order. See matchesWord.
var errorWords = []struct {
	word   string
	target error
}{
	{"ErrFailed", redsync.ErrFailed},
	{"ErrNoQuorum", redsync.ErrNoQuorum},
	{"ErrTaken", nil},
	{"ErrExtendFailed", redsync.ErrExtendFailed},
	{"ErrLockLost", redsync.ErrLockLost},
	{"Expired", redsync.ErrLockAlreadyExpired},
	{"ErrNotHeld", redsync.ErrNotHeld},
	{"ErrClosed", redsync.ErrClosed},
	{"ErrNoPools", redsync.ErrNoPools},
	{"Canceled", context.Canceled},
	{"Deadline", context.DeadlineExceeded},
	{"OutOfRange", nil},
	{"RedisError", nil},
}

func matchesWord(err error, word string, target error) bool {
	switch word {
	case "ErrTaken":
		return errors.As(err, new(*redsync.ErrTaken))
	case "OutOfRange":
		return strings.Contains(err.Error(), "WithExpiry(-1ns) is out of range")
	case "RedisError":
		return errors.As(err, new(*redsync.RedisError))
	}
	return errors.Is(err, target)
}

// wordsOf returns what err matches, and checks that it has one verdict, and that its *ErrTaken says what is taken.
func wordsOf(t *testing.T, err error) string {
	if err == nil {
		return "nil"
	}
	judged(t, err)
	for each := err; each != nil; each = errors.Unwrap(each) {
		_ = map[error]int{each: 1} // it can be compared
	}
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
		assert.NotEmpty(t, taken.Name)
		assert.NotEmpty(t, taken.Nodes)
	}
	var words []string
	for _, w := range errorWords {
		if matchesWord(err, w.word, w.target) {
			words = append(words, w.word)
		}
	}
	if len(words) == 0 {
		return "none of these"
	}
	return strings.Join(words, " ")
}

// An errorRow is a row of the table.
type errorRow struct {
	before func(s *errorCase)              // before the Mutex is made
	given  func(s *errorCase)              // before the operation. Extend, Valid and Unlock have the lock
	held   bool                            // Do and Lead have the lock: their function calls given, or Unlock if unheld
	unheld bool                            // Extend, Valid and Unlock do not have the lock
	open   func(ctx context.Context) error // Open with this cause
	want   string                          // lines of operations, and what the error matches, or "-: " and why that cannot be
}

// errorTable is the table. "nil" is no error: TryDo returns false, nil if others have the lock.
var errorTable = map[string]errorRow{
	"taken by another client": {
		given: func(s *errorCase) { s.rival(s.another(), allNodes...) },
		want: `Lock TryLock Do: ErrFailed ErrTaken
			TryDo: nil
			Lead: ErrFailed ErrTaken Deadline
			Extend Valid: ErrTaken ErrLockLost Expired
			Unlock AdoptingDo: ErrTaken Expired
			Open Ping: -: it asks for no lock`,
	},
	"a split vote": {
		given: func(s *errorCase) {
			second := s.another()
			s.rival(s.another(), allNodes...)
			s.rival(second, 2, 3, 4)
			s.empty(4)
		},
		want: `Lock TryLock Do: ErrFailed ErrTaken
			TryDo: nil
			Lead: ErrFailed ErrTaken Deadline
			Extend Valid Unlock AdoptingDo: -: votes are split while nobody has the lock
			Open Ping: -: it asks for no lock`,
	},
	"too few nodes are up": {
		given: func(s *errorCase) { s.kill(majority...); sleep(ms) },
		open:  func(ctx context.Context) error { return opens(ctx, closedAddresses) },
		want: `Lock TryLock Do TryDo Valid Unlock Open Ping: ErrNoQuorum RedisError
			Lead: ErrNoQuorum Deadline RedisError
			Extend AdoptingDo: ErrNoQuorum ErrExtendFailed RedisError`,
	},
	"too few nodes answer": {
		given: func(s *errorCase) { s.freeze(majority...) },
		want: `Lock TryLock Do TryDo Valid Unlock Ping: ErrNoQuorum RedisError
			Lead: ErrNoQuorum Deadline RedisError
			Extend: ErrLockLost Expired RedisError
			AdoptingDo: ErrNoQuorum ErrExtendFailed RedisError
			Open: -: see TestOpenEndedByItsContextNamesWhatNodesSaid, which needs real time`,
	},
	"the answers come too late": {
		// Nodes answer on a second connection, so the pools give up the first one, and Extend fails before Until.
		given: func(s *errorCase) { s.slow(4 * sec) },
		want: `Lock TryLock Do TryDo Valid Unlock: ErrNoQuorum RedisError
			Lead: ErrNoQuorum Deadline RedisError
			Extend AdoptingDo: ErrNoQuorum ErrExtendFailed RedisError
			Open: -: it asks for no lock
			Ping: nil`,
	},
	"the process pauses until the validity is over": {
		before: func(s *errorCase) { s.more = opts{withTries(1)} },
		given: func(s *errorCase) {
			pause := func() { sleep(4 * sec) }
			s.hook.Store(&pause)
		},
		want: `Lock TryLock Do TryDo: ErrNoQuorum
			Lead: -: it campaigns again
			Extend: ErrLockLost Expired
			Valid Unlock AdoptingDo: Expired
			Open Ping: -: it asks for no lock`,
	},
	"the context has ended": {
		given: func(s *errorCase) { s.slow(ms); s.cancel() }, // an answer may not come first
		open:  func(context.Context) error { return opens(parentOf(nil), closedAddresses) },
		want: `Lock TryLock Do TryDo Lead Valid Unlock Open Ping: Canceled
			Extend AdoptingDo: ErrExtendFailed Canceled`,
	},
	"the context ends while the nodes are silent": {
		given: func(s *errorCase) { s.freeze(allNodes...); time.AfterFunc(50*ms, s.cancel) },
		want: `Lock TryLock Do TryDo Lead Valid Unlock: Canceled
			Extend AdoptingDo: ErrExtendFailed Canceled
			Ping: Canceled RedisError
			Open: -: see TestOpenEndedByItsContextNamesWhatNodesSaid, which needs real time`,
	},
	"the context ends while another client has the lock": {
		before: func(s *errorCase) { s.more = opts{forever} },
		given:  func(s *errorCase) { s.rival(s.another(), allNodes...); time.AfterFunc(sec, s.cancel) },
		want: `Lock Do Lead: ErrFailed ErrTaken Canceled
			TryLock TryDo: -: it does not wait
			Extend Valid Unlock AdoptingDo: -: it does not wait for another client
			Open Ping: -: it asks for no lock`,
	},
	"other callers of the process are ahead": {
		given: func(s *errorCase) {
			s.freeze(allNodes...)
			ahead := *s
			ahead.mutex()
			s.begins(ahead.m)
			time.AfterFunc(50*ms, s.cancel)
		},
		want: `Lock TryLock Do TryDo Lead: Canceled
			Extend Valid Unlock AdoptingDo: -: it does not wait for callers
			Open Ping: -: it asks for no lock`,
	},
	"closed": {
		given: func(s *errorCase) { shut(s, s.Redsync) },
		want: `Lock TryLock Do TryDo Lead Extend Valid Unlock AdoptingDo Ping: ErrClosed
			Open: -: it makes a new Redsync`,
	},
	"no pools": {
		before: func(s *errorCase) { s.on(nil) },
		unheld: true,
		open:   func(ctx context.Context) error { return opens(ctx, nil) },
		want: `Lock TryLock Do TryDo Lead Extend Valid Unlock Open Ping: ErrNoPools
			AdoptingDo: -: it has nothing to adopt`,
	},
	"an option is out of its range": {
		before: func(s *errorCase) { s.more = opts{withExpiry(-1)} },
		unheld: true,
		open:   func(ctx context.Context) error { return opens(ctx, closedAddresses, withExpiry(-1)) },
		want: `Lock TryLock Do TryDo Lead Extend Valid Unlock Open Ping: OutOfRange
			AdoptingDo: -: it has nothing to adopt`,
	},
	"the keys are gone": {
		given: func(s *errorCase) { s.empty(allNodes...) },
		held:  true,
		want: `Lock TryLock: -: it has no lock to lose
			Do TryDo Extend Valid: ErrLockLost Expired
			Lead: ErrLockLost Expired Canceled
			Unlock AdoptingDo: Expired
			Open Ping: -: it asks for no lock`,
	},
	"expired": {
		given: func(*errorCase) { sleep(4 * sec) },
		want: `Lock TryLock: -: it has no lock to lose
			Do TryDo Lead: -: its watchdog extends the lock
			Extend Valid Unlock AdoptingDo: Expired
			Open Ping: -: it asks for no lock`,
	},
	"not held": {
		unheld: true,
		held:   true,
		want: `Lock TryLock: -: it needs no lock
			Do TryDo Extend Valid Unlock: Expired ErrNotHeld
			Lead: -: nobody else can unlock its Mutex
			Open Ping: -: it asks for no lock
			AdoptingDo: -: it has nothing to adopt`,
	},
	"too many nodes deny access": {
		given: func(s *errorCase) { s.deny("NOPERM this user has no permissions") },
		want: `Lock TryLock Do TryDo Lead Valid Unlock: ErrNoQuorum RedisError
			Extend AdoptingDo: ErrNoQuorum ErrExtendFailed RedisError
			Open Ping: -: PING needs no permission`,
	},
}

// Nobody listens at closedAddresses.
var closedAddresses = []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}

// opens returns the error of Open.
func opens(ctx context.Context, addresses []string, options ...redsync.Option) error {
	_, err := redsync.Open(ctx, addresses, options...)
	return err
}

// errorExceptions are the cases that differ from the table, by mode, operation and cause. "" stands for each.
var errorExceptions = map[[3]string]string{
	{"readers", "Lead", ""}:       "-: Lead excludes WithShared",
	{"permits", "Lead", ""}:       "-: Lead excludes WithPermits",
	{"several names", "Lead", ""}: "-: Lead takes one name",

	// With WithFair a TryLock does not overtake, so it asks no node.
	{"fair", "TryLock", "other callers of the process are ahead"}: "ErrFailed",
	{"fair", "TryDo", "other callers of the process are ahead"}:   "nil",
}

func TestErrorsByOperationModeAndCause(t *testing.T) {
	testlength.FromGate(t)
	parallelComputing(t)
	used, at, every := map[[3]string]bool{}, 0, testlength.InGate(1, 61, 5, 1) // no divisor of the number of modes
	for cause, row := range sorted(errorTable) {
		want := map[string]string{}
		for line := range strings.Lines(row.want) {
			operations, words, _ := strings.Cut(strings.TrimSpace(line), ": ")
			for operation := range strings.FieldsSeq(operations) {
				require.NotContains(t, want, operation, cause)
				want[operation] = words
			}
		}
		operations := slices.AppendSeq([]string{"Open"}, maps.Keys(errorOperations))
		require.ElementsMatch(t, operations, slices.Collect(maps.Keys(want)), cause)
		for operation, does := range sorted(errorOperations) {
			for mode := range sorted(errorModes) {
				words := want[operation]
				for _, key := range [][3]string{{mode, operation, ""}, {mode, operation, cause}} {
					if other, ok := errorExceptions[key]; ok {
						words, used[key] = other, true
					}
				}
				if at++; strings.HasPrefix(words, "-: ") || words == want[operation] && at%every != 0 {
					continue
				}
				playAs(t, strings.Join([]string{cause, operation, mode}, ", "), func(f field) {
					assert.Equal(f, words, wordsOf(f.T, errorOf(f, mode, operation, row, does)))
				})
			}
		}
		words := want["Open"]
		require.Equal(t, strings.HasPrefix(words, "-: "), row.open == nil, cause)
		if row.open != nil {
			assert.Equal(t, words, wordsOf(t, row.open(t.Context())), cause)
		}
	}
	for key := range errorExceptions {
		assert.True(t, used[key], "%q is not a case", key)
	}
}

// errorOf returns the error of one operation.
func errorOf(f field, mode, operation string, row errorRow, does func(s *errorCase) error) error {
	hook := &atomic.Pointer[func()]{}
	s := &errorCase{field: f, mode: mode, hook: hook}
	s.ctx, s.cancel = context.WithCancel(f.Context())
	defer s.cancel()
	var pools []pool.Pool
	for _, c := range clientsOf(f.nodes) {
		pools = append(pools, hooked{pool.New(c), hook})
	}
	s.on(pools)
	s.meet()
	if row.before != nil {
		row.before(s)
	}
	s.mutex()
	s.inside = func(context.Context) error { assert.Fail(s, "it has the lock"); return nil }
	switch needs := slices.Contains([]string{"Extend", "Valid", "Unlock", "AdoptingDo"}, operation); {
	case needs && !row.unheld:
		locked(s, s.m)
		sleep(ms)
		if operation == "AdoptingDo" {
			s.more = append(s.more, withSequencer(s.m.Sequencer()))
			s.mutex()
		}
		row.given(s)
	case row.held && !needs:
		s.inside = func(ctx context.Context) error {
			m := redsync.FromContext(ctx)
			if row.unheld {
				_, _ = m.Unlock()
				return nil
			}
			row.given(s)
			_, _ = m.Valid() // it notices the loss
			if operation == "Lead" {
				s.cancel() // otherwise it would campaign again
			}
			return nil
		}
	case row.given != nil:
		row.given(s)
	}
	defer s.thaw(allNodes...)
	return does(s)
}
