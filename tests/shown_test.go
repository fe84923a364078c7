package redsync_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests that a value that the user has seen belongs to one hold only.

// shows are the ways in which a user sees the value of a hold.
var shows = map[string]func(m *redsync.Mutex) (value string){
	"Value":     (*redsync.Mutex).Value,
	"Sequencer": func(m *redsync.Mutex) string { return m.Sequencer().Value },
}

func TestAValueThatWasShownIsNotHandedOver(t *testing.T) {
	for name, show := range shows {
		kitAs(t, name, func(k kit) {
			server, giver := k.another(), k.held()
			c := k.inLine()
			s := redsync.Sequencer{Name: "lock", Value: show(giver)}
			require.NotEmpty(k, s.Value)
			k.atOnce(giver, c)
			assert.NotEqual(k, s.Value, fortests.Value(c.Mutex))
			errorIs(k, k.current(server, s), redsync.ErrLockAlreadyExpired) // Current says that the lock was unlocked
			k.unlocks(c)
		})
	}
}

// The value was sent to a second process, which has unlocked the lock with it. A third process has the lock now. So the
// first process must not hand the lock over.
func TestUnlockDoesNotHandOverWhatAnotherHasReleased(t *testing.T) {
	kitMet(t, func(k kit) {
		second, third := k.another(), k.another()
		m := k.locks()
		value := m.Value()
		k.unlock(second.NewMutex("lock", withValue(value)))
		other := locked(t, third.NewMutex("lock"))
		c := k.inLine()
		time.Sleep(100 * ms) // the third has all nodes: some may have refused it, behind the release
		for _, late := range []*redsync.Mutex{second.NewMutex("lock", withValue(value)), m} {
			_, err := late.Unlock()
			errorIs(t, err, redsync.ErrLockAlreadyExpired)
			isTaken(t, err)
			assert.NotContains(t, err.Error(), "released already")
		}
		assert.False(t, c.isDone())
		assert.Positive(t, other.Remaining())
		k.unlock(other)
		k.within(c, 0)
	})
}

// A lock that the user has given away stays held, even if the Mutex that acquired it is locked again.
func TestALaterLockDoesNotReleaseAValueThatWasShown(t *testing.T) {
	for name, show := range shows {
		kitAs(t, name, func(k kit) {
			other := k.another()
			m := k.held()
			given := other.NewMutex("lock", withValue(show(m)), withWatchdog)
			k.extends(given)
			time.Sleep(minute)
			require.Zero(k, m.Remaining())
			isTaken(k, m.TryLock())
			time.Sleep(minute)
			assert.Equal(k, 5, k.keys("lock"))
			alive(k, given)
			k.unlocks(given)
		})
	}
}

// Unlock, unlike Lock, releases a value that the user has seen even if the hold is over: the
// caller of Unlock has asked for exactly that lock to be released.
func TestUnlockOfALockThatIsOverReleasesAValueThatWasShown(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		value := m.Value()
		given := k.another().NewMutex("lock", withValue(value))
		time.Sleep(7 * sec)
		confirmed(t, given.Extend)
		time.Sleep(2 * sec)
		assert.Equal(t, value, m.Value()) // kept
		failsWith(t, m.Unlock, redsync.ErrLockAlreadyExpired)
		assert.Empty(t, m.Value())
		time.Sleep(ms)
		k.nothingLeft()
	})
}

// printed returns v in every form in which a program may log it.
func printed(tb testing.TB, v any) string {
	tb.Helper()
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		_, _ = fmt.Fprintf(&all, verb+"\n", v)
		_, _ = fmt.Fprintf(&all, verb+"\n", struct{ V any }{v})
	}
	slog.New(slog.NewTextHandler(&all, nil)).Info("text", "v", v, slog.Group("group", "v", v))
	slog.New(slog.NewJSONHandler(&all, nil)).Info("json", "v", v, "in", []any{v})
	all.Write(must(json.Marshal(struct{ V any }{v})))
	return all.String()
}

func TestNoTextShowsTheValueOfAMutex(t *testing.T) {
	play(t, func(f field) {
		fenced := f.held(withFencing)
		adopted := f.NewMutex("lock", withValue("secret"))
		over := locked(f, f.NewMutex("over", oneSecond))
		values := []string{"secret", over.Value(), fenced.Value()}
		time.Sleep(2 * sec)
		at := func(m *redsync.Mutex) string { return m.Until().Format("15:04:05.000") }
		for want, m := range map[string]*redsync.Mutex{
			fmt.Sprintf(`redsync.Mutex("lock", held until %s, token %d)`, at(fenced), fenced.Fence()): fenced,
			`redsync.Mutex("lock", adopted)`:                              adopted,
			fmt.Sprintf(`redsync.Mutex("over", over until %s)`, at(over)): over,
			`redsync.Mutex("idle", idle)`:                                 f.NewMutex("idle"),
			`redsync.Mutex("", nil)`:                                      nil,
		} {
			assert.Equal(f, want, fmt.Sprint(m))
			text := printed(f, m)
			for _, value := range values {
				assert.NotContains(f, text, value)
			}
			if m != nil {
				assert.Contains(f, text, `"v":{"name":"`+m.Name()+`","state":"`)
				assert.Contains(f, text, ` v.name=`+m.Name()+` v.state=`)
			}
		}
		assert.NotContains(f, printed(f, f.With(withValue("secret"))), "secret")
		all := []error{adopted.TryLock()}
		for _, m := range []*redsync.Mutex{over, fenced} {
			for _, operation := range operations(m) {
				all = append(all, second(operation()))
			}
			f.kill(majority...)
		}
		for _, err := range all {
			erred(f, err)
			text := fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
			for _, value := range values {
				assert.NotContains(f, text, value)
			}
		}
	})
}

func TestNoTextButStringShowsTheValueOfASequencer(t *testing.T) {
	s := redsync.Sequencer{Name: "lock", Token: 7, Value: "secret"}
	assert.Equal(t, `redsync.Sequencer("lock", token 7)`, fmt.Sprint(s))
	encoded := "c2VjcmV0" // in the text of String
	assert.Contains(t, s.String(), encoded)
	for _, v := range []any{s, &s} {
		text := printed(t, v)
		assert.NotContains(t, text, "secret")
		for line := range strings.Lines(text) {
			json := strings.HasPrefix(line, `{"`) // JSON is made for sending
			assert.Equal(t, json, strings.Contains(line, encoded), line)
		}
	}
}

// An echo is a node that, at times, repeats in its reply what it was sent.
type echo struct {
	pool.Pool
	says *atomic.Pointer[func(text string) wire.Reply]
}

func (e echo) Send(req wire.Request) error {
	if says := e.says.Load(); says != nil {
		go req.To.Receive(req.Tag, (*says)(fmt.Sprintf("%q", req.Args)))
		return nil
	}
	return e.Pool.Send(req)
}

type echoed string

func (e echoed) Error() string { return string(e) }
func (echoed) RedisError()     {}

// Whatever a node repeats of a command, no error and no line of the log has a part of the value.
func TestNoTextOfANodeShowsAValue(t *testing.T) {
	testlength.FromGate(t)
	values := []string{"", "secret", "seven pomegranates, \"quoted\" ones", "\x01\xff\x02 odd mandarins \u202e"}
	made := 0
	refuses := func(format string) func(string) wire.Reply {
		return func(text string) wire.Reply {
			return wire.Reply{Err: echoed(fmt.Sprintf(format, text)), Fate: wire.Answered, Conn: 1}
		}
	}
	for name, says := range map[string]func(string) wire.Reply{
		"an unknown command": refuses("ERR unknown command 'evalsha', with args beginning with: %s"),
		"a script":           refuses("ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: what is %s"),
		"a denial":           refuses("NOPERM nobody may use %s"),
		"the text alone":     refuses("%s"),
		"no error":           func(text string) wire.Reply { return wire.Reply{Value: text, Fate: wire.Answered, Conn: 1} },
		"no answer": func(text string) wire.Reply {
			return wire.Reply{Err: errors.New("while sending " + text), Fate: wire.Unknown, Conn: 1}
		},
	} {
		play(t, func(f field) {
			echoes, log := new(atomic.Pointer[func(string) wire.Reply]), &safeLog{}
			var pools []pool.Pool
			for _, p := range f.pools() {
				pools = append(pools, echo{p, echoes})
			}
			rs := redsync.New(pools...)
			f.closes(rs)
			rs = rs.With(redsync.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			for _, kind := range lockKinds {
				for _, value := range values {
					echoes.Store(nil)
					options := opts{redsync.WithTries(1)}
					if value != "" {
						options = append(options, redsync.WithGenValueFunc(func() (string, error) {
							made++
							return value + strconv.Itoa(made), nil
						}))
					}
					m := locked(f, kind.lock(rs, options...))
					secret := cmp.Or(value, m.Value())
					echoes.Store(&says)
					errs := []error{kind.lock(rs, options...).TryLock()}
					for _, operation := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
						_, err := operation()
						errs = append(errs, err)
					}
					_, err := kind.rival(rs).Inspect(f.Context())
					said := fmt.Sprintf("%v %#v", append(errs, err), append(errs, err))
					echoes.Store(nil)
					time.Sleep(time.Minute)
					said += log.String()
					assert.NotEmpty(f, said)
					for i, n := 0, min(8, len(secret)); i+n <= len(secret); i++ {
						require.NotContains(f, said, secret[i:i+n], "%s: %s", name, kind.column)
					}
				}
			}
		})
	}
}

// No text repeats a long name as a whole.
func TestLongNamesAreCutInTexts(t *testing.T) {
	play(t, func(f field) {
		long, log := strings.Repeat("é", 300), &safeLog{}
		rs := f.another().With(redsync.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		locked := locked(f, rs.NewMutex(long))
		over := withSequencer(locked.Sequencer())
		_, extended := rs.NewMutex(long).Extend()
		for _, err := range []error{
			extended, rs.NewMutex(long).TryLock(), rs.NewMutex("{" + long + "}:queue").Lock(), rs.NewMultiMutex([]string{"b", long}).TryLock(),
			rs.NewMutex("other", over).Lock(), rs.NewMultiMutex(both, over).Lock(),
			rs.Do(f.Context(), long+"2", func(ctx context.Context) error { return rs.NewMutex(long + "2").LockContext(ctx) }),
		} {
			erred(f, err)
			assert.Less(f, len(err.Error()), 1200)
			assert.Contains(f, err.Error(), `é"... (6`)
			assert.NotContains(f, err.Error(), strings.Repeat("é", 101))
		}
		assert.Contains(f, fmt.Sprint(locked), `é... (600 bytes)"`)
		assert.NotContains(f, log.String(), strings.Repeat("é", 101))
		f.unlock(locked)
	})
}
