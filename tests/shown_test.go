package redsync_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/peek"
)

// This file tests that a value that the user has seen belongs to one hold only.

// shows are the ways in which a user sees the value of a hold.
var shows = map[string]func(m *redsync.Mutex) (value string){
	"Value":     (*redsync.Mutex).Value,
	"Sequencer": func(m *redsync.Mutex) string { return m.Sequencer().Value },
}

func TestAValueThatWasShownIsNotHandedOver(t *testing.T) {
	for name, show := range shows {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				server := k.another()
				giver := k.NewMutex("lock")
				require.NoError(t, giver.Lock())
				c := k.calls(k.Redsync, patient()...)
				s := redsync.Sequencer{Name: "lock", Value: show(giver)}
				require.NotEmpty(t, s.Value)
				k.atOnce(giver, c)
				assert.NotEqual(t, s.Value, peek.Value(c.Mutex))
				require.ErrorIs(t, server.Current(k.Context(), s), redsync.ErrLockAlreadyExpired, "Current says that the lock was unlocked")
				_, err := server.NewMutex("lock", redsync.WithValue(s.Value)).Unlock()
				require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
				k.unlocks(c.Mutex)
			})
		})
	}
}

// The value was sent to a second process, which has unlocked the lock with it. A third process has the lock now. So the
// first process must not hand the lock over.
func TestUnlockDoesNotHandOverWhatAnotherHasReleased(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		second, third := k.another(), k.another()
		m := k.NewMutex("lock")
		require.NoError(t, m.Lock())
		k.unlock(second.NewMutex("lock", redsync.WithValue(m.Value())))
		other := third.NewMutex("lock")
		require.NoError(t, other.Lock())
		c := k.calls(k.Redsync, patient()...)
		time.Sleep(time.Millisecond)
		_, err := m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		assert.False(t, c.isDone())
		assert.Positive(t, other.Remaining())
		k.unlock(other)
		k.within(c, 0)
	})
}

// A lock that the user has given away stays held, even if the Mutex that acquired it is locked again.
func TestALaterLockDoesNotReleaseAValueThatWasShown(t *testing.T) {
	for name, show := range shows {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				other := k.another()
				m := k.held()
				given := other.NewMutex("lock", redsync.WithValue(show(m)), redsync.WithWatchdog())
				_, err := given.Extend()
				require.NoError(t, err)
				time.Sleep(time.Minute)
				require.Zero(t, m.Remaining())
				var taken *redsync.ErrTaken
				require.ErrorAs(t, m.TryLock(), &taken)
				time.Sleep(time.Minute)
				assert.Equal(t, 5, k.keys("lock"))
				require.NoError(t, given.Err())
				k.unlocks(given)
			})
		})
	}
}

func TestALaterLockReleasesNoValueThatItDidNotMake(t *testing.T) {
	mine := rand.Text()
	for name, c := range map[string]struct{ owner, later func(k kit) *redsync.Mutex }{
		"adopted": {
			func(k kit) *redsync.Mutex { return k.held(redsync.WithWatchdog()) },
			func(k kit) *redsync.Mutex {
				value := fmt.Sprint(k.command(0, "get", "lock"))
				m := k.NewMutex("lock", redsync.WithValue(value), redsync.WithExpiry(time.Second))
				_, err := m.Extend()
				require.NoError(k, err)
				return m
			},
		},
		"of the user's generator": {
			func(k kit) *redsync.Mutex {
				m := k.another().NewMutex("lock", redsync.WithValue(mine), redsync.WithWatchdog())
				time.AfterFunc(time.Millisecond, func() {
					_, err := m.Extend()
					assert.NoError(k, err)
				})
				return m
			},
			func(k kit) *redsync.Mutex {
				values := make(chan string, 2)
				values <- mine
				values <- rand.Text()
				m := k.NewMutex("lock", redsync.WithExpiry(time.Second),
					redsync.WithGenValueFunc(func() (string, error) { return <-values, nil }))
				require.NoError(k, m.Lock())
				return m
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				owner := c.owner(k)
				later := c.later(k)
				time.Sleep(10 * time.Second)
				require.ErrorIs(t, later.Err(), redsync.ErrLockLost)
				require.ErrorIs(t, later.TryLock(), redsync.ErrFailed)
				time.Sleep(time.Second)
				assert.Equal(t, 5, k.keys("lock"))
				require.NoError(t, owner.Err())
				k.unlocks(owner)
			})
		})
	}
}

// A Lock that wins proves that the former hold of the Mutex is over. Even so, if the user has
// seen the value of the former hold, Lock does not release that value: its keys expire.
func TestALockThatWinsLeavesAValueThatWasShown(t *testing.T) {
	for name, c := range map[string]struct {
		shown bool
		want  int
	}{"shown": {true, 2}, "not shown": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				m := k.held()
				former := peek.Value(m)
				if c.shown {
					require.Equal(t, former, m.Value())
				}
				lost := m.Lost()
				k.lose(0, 1, 2)
				require.NoError(t, m.TryLock())
				assert.False(t, open(lost))
				time.Sleep(time.Second)
				left := 0
				for i := range 5 {
					if k.command(i, "get", "lock") == any(former) {
						left++
					}
				}
				assert.Equal(t, c.want, left)
				time.Sleep(guard) // these keys expire
			})
		})
	}
}

// Unlock, unlike Lock, releases a value that the user has seen even if the hold is over: the
// caller of Unlock has asked for exactly that lock to be released.
func TestUnlockOfALockThatIsOverReleasesAValueThatWasShown(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		value := m.Value()
		given := k.another().NewMutex("lock", redsync.WithValue(value))
		time.Sleep(7 * time.Second)
		_, err := given.Extend()
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		assert.Equal(t, value, m.Value(), "kept")
		_, err = m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		assert.Empty(t, m.Value())
		time.Sleep(time.Millisecond)
		k.nothingLeft()
	})
}

// printed returns v in every form in which a program may log it.
func printed(t *testing.T, v any) string {
	t.Helper()
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		_, _ = fmt.Fprintf(&all, verb+"\n", v)
		_, _ = fmt.Fprintf(&all, verb+"\n", struct{ V any }{v})
	}
	slog.New(slog.NewTextHandler(&all, nil)).Info("text", "v", v, slog.Group("group", "v", v))
	slog.New(slog.NewJSONHandler(&all, nil)).Info("json", "v", v, "in", []any{v})
	text, err := json.Marshal(struct{ V any }{v})
	require.NoError(t, err)
	all.Write(text)
	return all.String()
}

func TestNoTextShowsTheValueOfAMutex(t *testing.T) {
	play(t, func(f field) {
		fenced := f.held(redsync.WithFencing())
		adopted := f.NewMutex("lock", redsync.WithValue("secret"))
		over := f.NewMutex("over", redsync.WithExpiry(time.Second))
		require.NoError(f, over.Lock())
		over.Value()
		time.Sleep(2 * time.Second)
		until := fenced.Until().Format("15:04:05.000")
		for want, m := range map[string]*redsync.Mutex{
			fmt.Sprintf(`redsync.Mutex("lock", held until %s, token %d)`, until, fenced.Fence()): fenced,
			`redsync.Mutex("lock", adopted)`: adopted,
			fmt.Sprintf(`redsync.Mutex("over", over until %s)`, over.Until().Format("15:04:05.000")): over,
			`redsync.Mutex("idle", idle)`: f.NewMutex("idle"),
			`redsync.Mutex("", nil)`:      nil,
		} {
			assert.Equal(f, want, fmt.Sprint(m))
			text := printed(f.T, m)
			assert.NotContains(f, text, "secret")
			if m != nil && m.Value() != "" {
				assert.NotContains(f, text, m.Value())
				assert.Contains(f, text, `{"V":{"name":"`+m.Name()+`","state":"`)
				assert.Contains(f, text, ` v.name=`+m.Name()+` v.state=`)
			}
		}
		var all []error
		values := []string{"secret", over.Value(), fenced.Value()}
		for _, operation := range operations(over) {
			_, err := operation()
			all = append(all, err)
		}
		f.kill(0, 1, 2)
		for _, operation := range operations(fenced) {
			_, err := operation()
			all = append(all, err)
		}
		for _, err := range append(all, adopted.TryLock()) {
			require.Error(f, err)
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

func TestARedsyncShowsItsNodes(t *testing.T) {
	play(t, func(f field) {
		rs := f.With(redsync.WithValue("secret"))
		assert.Equal(f, "redsync.Redsync(127.0.0.1:7001, 127.0.0.1:7002, 127.0.0.1:7003, 127.0.0.1:7004, 127.0.0.1:7005)", fmt.Sprint(rs))
		assert.NotContains(f, printed(f.T, rs), "secret")
		var none *redsync.Redsync
		assert.Equal(f, "redsync.Redsync()", fmt.Sprint(none))
		assert.Contains(f, printed(f.T, none), `{"V":null}`)
	})
}

// A program may print a Mutex while others use it.
func TestPrintingAMutexBesideItsCallsIsNoRace(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithFencing())
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				for range 20 {
					require.NoError(f, m.Lock())
					f.unlock(m)
				}
			})
		}
		for range 100 {
			printed(f.T, m)
			printed(f.T, f.Redsync)
			time.Sleep(time.Microsecond)
		}
		calls.Wait()
	})
}

// No text repeats a long name as a whole.
func TestLongNamesAreCutInTexts(t *testing.T) {
	play(t, func(f field) {
		long := strings.Repeat("é", 300)
		rs := f.another()
		log := &safeLog{}
		rs = rs.With(redsync.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		var errs []error
		locked, again := rs.NewMutex(long), rs.NewMutex(long)
		require.NoError(f, locked.Lock())
		errs = append(errs, again.TryLock(), rs.NewMutex("{"+long+"}:queue").Lock(), rs.NewMultiMutex([]string{"b", long}).TryLock(),
			rs.NewMutex("other", redsync.WithSequencer(locked.Sequencer())).Lock(),
			rs.NewMultiMutex([]string{"a", "b"}, redsync.WithSequencer(locked.Sequencer())).Lock(),
			rs.Do(f.Context(), long+"2", func(ctx context.Context) error { return rs.NewMutex(long + "2").LockContext(ctx) }))
		_, err := again.Extend()
		errs = append(errs, err)
		for _, err := range errs {
			require.Error(f, err)
			assert.Less(f, len(err.Error()), 1200)
			assert.Contains(f, err.Error(), `é"... (6`)
			assert.NotContains(f, err.Error(), strings.Repeat("é", 101))
		}
		assert.Contains(f, fmt.Sprint(locked), `é... (600 bytes)"`)
		assert.NotContains(f, strings.Join(log.take(), "\n"), strings.Repeat("é", 101))
		f.unlock(locked)
	})
}
