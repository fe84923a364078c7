package redsync_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows what WithLogger writes, and that no event shows a value.

func newLogbook() *logbook {
	l := &logbook{}
	l.Handler = slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug})
	return l
}

func TestLoggerLevels(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(f field)
		want    map[string]int // entries above the level debug
	}{
		"all is well": {func(f field) {
			m := f.held(redsync.WithWatchdog())
			time.Sleep(20 * time.Second)
			_, err := m.Extend()
			require.NoError(f, err)
			_, err = m.Unlock()
			require.NoError(f, err)
		}, map[string]int{}},
		"the lock is taken": {func(f field) {
			f.held(redsync.WithWatchdog())
			require.Error(f, f.NewMutex("lock", redsync.WithTries(3)).Lock())
		}, map[string]int{}},
		"the lock is taken and two nodes are down": {func(f field) {
			f.held(redsync.WithWatchdog())
			f.kill(0, 1)
			require.Error(f, f.NewMutex("lock").TryLock())
		}, map[string]int{"WARN redsync: node is down": 2}},
		"a node is down": {func(f field) {
			f.kill(0)
			m := f.NewMutex("lock", redsync.WithWatchdog())
			require.NoError(f, m.Lock())
			time.Sleep(20 * time.Second)
			_, err := m.Unlock()
			require.NoError(f, err)
		}, map[string]int{"WARN redsync: node is down": 1}},
		"two contend": {func(f field) {
			require.NoError(f, f.nodes[0].Set("lock", "one"))
			require.NoError(f, f.nodes[1].Set("lock", "one"))
			require.NoError(f, f.nodes[2].Set("lock", "two"))
			require.Error(f, f.NewMutex("lock").TryLock())
		}, map[string]int{}},
		"the caller cancels": {func(f field) {
			f.freeze(0, 1, 2)
			ctx, cancel := context.WithCancel(f.Context())
			time.AfterFunc(time.Millisecond, cancel)
			require.Error(f, f.NewMutex("lock").LockContext(ctx))
		}, map[string]int{}},
		"no quorum is reachable": {func(f field) {
			f.kill(0, 1, 2)
			require.Error(f, f.NewMutex("lock", redsync.WithTries(2)).Lock())
		}, map[string]int{"WARN redsync: attempt failed": 2, "WARN redsync: node is down": 3}},
		"the lock expires": {func(f field) {
			m := f.held()
			time.Sleep(10 * time.Second)
			_ = m.Err()
			_, _ = m.Extend()
		}, map[string]int{"ERROR redsync: lost": 1}},
		"a loss is found by Unlock": {func(f field) {
			m := f.held()
			f.lose(0, 1, 2)
			_, _ = m.Unlock()
		}, map[string]int{"WARN redsync: unlock failed": 1}},
		"an extension fails": {func(f field) {
			m := f.held()
			for _, n := range f.nodes[:3] {
				n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
			}
			_, err := m.Extend()
			require.ErrorIs(f, err, redsync.ErrExtendFailed)
		}, map[string]int{"WARN redsync: extend failed": 1, "WARN redsync: node is down": 3}},
		"a watchdog finds a loss": {func(f field) {
			f.held(redsync.WithWatchdog())
			f.lose(0, 1, 2)
			time.Sleep(20 * time.Second)
		}, map[string]int{"WARN redsync: extend failed": 1, "ERROR redsync: lost": 1}},
		"Close ends a hold and gives up on a node": {func(f field) {
			f.held()
			f.kill(0)
			require.NoError(f, f.Close(f.Context()))
		}, map[string]int{"WARN redsync: releases given up": 1, "WARN redsync: node is down": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				book := newLogbook()
				f.Redsync = f.With(redsync.WithLogger(slog.New(book)))
				c.happens(f)
				assert.Equal(t, c.want, book.above(), "%s", &book.text)
			})
		})
	}
}

func TestLoggerMessagesAndAttributes(t *testing.T) {
	onKit(t, func(k kit) {
		book := newLogbook()
		k.Redsync = k.With(redsync.WithLogger(slog.New(book)))
		m := k.held()
		_, err := m.Extend()
		require.NoError(k, err)
		k.down(4)
		_, err = m.Unlock()
		require.NoError(k, err)
		k.down(0, 1)
		time.Sleep(20 * time.Second)
		m = k.NewMutex("lock")
		require.Error(k, m.TryLock())
		k.up(0, 1, 4)
		require.NoError(k, m.TryLock())
		time.Sleep(time.Second)
		k.lose(0, 1, 2, 3, 4)
		_, err = m.Extend()
		require.ErrorIs(k, err, redsync.ErrLockLost)
		_, err = m.Unlock()
		require.Error(k, err)
		got := map[string]string{}
		synctest.Wait()
		for _, e := range book.entries {
			if attrs := strings.Join(e.attrs, " "); len(attrs) > len(got[e.message]) { // error is not always there
				got[e.message] = attrs
			}
		}
		assert.Equal(t, map[string]string{
			"redsync: attempt won":              "lock try took granted refused failed",
			"redsync: attempt failed":           "lock try took granted refused failed error",
			"redsync: not acquired":             "lock took error",
			"redsync: acquired":                 "lock took waited tries left",
			"redsync: extended":                 "lock watchdog took left",
			"redsync: extend failed":            "lock watchdog took left error",
			"redsync: unlocked":                 "lock held left took",
			"redsync: unlock failed":            "lock held left took error",
			"redsync: lost":                     "lock held error",
			"redsync: node is down":             "node address error",
			"redsync: node is up again":         "node address down",
			"redsync: release will be repeated": "lock node pending error",
		}, got)
	})
}

// The value proves the ownership of a lock, so no event and no log entry may contain it.
func TestEventsAndLogNeverContainAValue(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		book, r := newLogbook(), &redsynctest.Recorder{}
		k.Redsync = k.With(redsync.WithLogger(slog.New(book)), redsync.WithObserver(r), redsync.WithTries(1))
		var values []string
		m := k.held(redsync.WithWatchdog())
		values = append(values, m.Value())
		require.Error(k, k.NewMutex("lock").Lock())
		a := k.NewMutex("lock", redsync.WithValue(m.Value()))
		_, err := a.Extend()
		require.NoError(k, err)
		k.down(0)
		k.freeze(1)
		time.Sleep(10 * time.Second)
		k.lose(2, 3, 4)
		time.Sleep(20 * time.Second)
		_, _ = m.Unlock()
		_, _ = a.Unlock()
		own := rand.Text()
		constant := redsync.WithGenValueFunc(func() (string, error) { return own, nil })
		require.NoError(k, k.NewMutex("other", constant).Lock())
		require.Error(k, k.NewMutex("other", constant).Lock())
		values = append(values, own)
		_ = k.Close(k.Context())
		synctest.Wait()
		all := book.text.String() + fmt.Sprintf("%+v", r.All())
		assert.Greater(t, len(all), 1000)
		for _, value := range values {
			assert.NotContains(t, all, value)
		}
	})
}

// An entry is one line of a log.
type entry struct {
	level   slog.Level
	message string
	attrs   []string
}

// A logbook is a slog.Handler that keeps what is written.
type logbook struct {
	slog.Handler
	mu      sync.Mutex
	entries []entry
	text    strings.Builder
}

func (l *logbook) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{level: r.Level, message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs = append(e.attrs, a.Key)
		return true
	})
	l.entries = append(l.entries, e)
	return l.Handler.Handle(ctx, r)
}

// forget drops the entries so far.
func (l *logbook) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// above counts the entries above the level debug, by level and message.
func (l *logbook) above() map[string]int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[string]int{}
	for _, e := range l.entries {
		if e.level > slog.LevelDebug {
			count[e.level.String()+" "+e.message]++
		}
	}
	return count
}
