package redsync_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// This file tests what processes leave on the nodes that exit right after a Close whose context has ended.

// An exiting is a process that is about to exit: stop ends ctx, as a signal does.
type exiting struct {
	*redsync.Redsync
	ctx  context.Context //nolint:containedctx // of the process
	stop func()
}

func (e exiting) locks(options ...redsync.Option) error {
	return e.NewMutex("x", options...).LockContext(e.ctx)
}

// twice locks two Mutexes.
func (e exiting) twice(option redsync.Option) error {
	return errors.Join(e.locks(option), e.locks(option))
}

// work is the function of a Do that the signal ends.
func (e exiting) work(context.Context) error {
	e.stop()
	return nil
}

// exits are the ways in which a process may hold locks, or ask for one, when its context ends.
var exits = map[string]func(e exiting) error{
	"plain":   func(e exiting) error { return e.locks() },
	"readers": func(e exiting) error { return e.twice(withShared) },
	"permits": func(e exiting) error { return e.twice(withPermits(3)) },
	"fenced":  func(e exiting) error { return e.locks(withFencing) },
	"watchdog": func(e exiting) error {
		return e.locks(withFair, withWatchdog, withOwner("it"))
	},
	"several": func(e exiting) error { return e.NewMultiMutex(both).LockContext(e.ctx) },
	"TryDo":   func(e exiting) error { return second(e.TryDo(e.ctx, "x", e.work)) },
	"nested": func(e exiting) error {
		return e.Do(e.ctx, "x", func(ctx context.Context) error { return e.Do(ctx, "x", e.work) })
	},
	"joined": func(e exiting) error { // Close comes while both functions run
		began := make(chan struct{})
		go func() {
			_ = e.Do(e.ctx, "x", func(ctx context.Context) error {
				return e.Do(ctx, "x", func(context.Context) error { close(began); sleep(minute); return nil })
			})
		}()
		<-began
		return nil
	},
	"Lead": func(e exiting) error { return e.Lead(e.ctx, "x", e.work) },
	"waiting": func(e exiting) error {
		err := e.locks()
		go func() { _ = e.locks(withFair, forever) }()
		sleep(ms)
		return err
	},
	"asking": func(e exiting) error {
		go func() { _ = e.locks() }()
		sleep(ms)
		return nil
	},
	"Unlock": func(e exiting) error {
		m := e.NewMutex("x")
		err := m.LockContext(e.ctx)
		e.stop()
		_, _ = m.UnlockContext(e.ctx) // it says that the context has ended, although it has waited for the release
		return err
	},
}

// When Close returns, no node has a key but the registers of fencing tokens.
func TestExitLeavesNothing(t *testing.T) {
	for how, does := range exits {
		playAs(t, how, func(f field) {
			ctx, stop := context.WithCancel(f.Context())
			e := exiting{f.far(), ctx, stop}
			assert.NoError(f, does(e))
			stop()
			assert.NoError(f, e.Close(ctx))
			for _, n := range f.nodes {
				for _, key := range n.Keys() {
					assert.Contains(f, key, ":fence")
				}
			}
			sleep(hour)
		})
	}
}

// TestExitOfAProcess starts this program again for each way. It exits right after Close, and a server shows what it has
// left.
func TestExitOfAProcess(t *testing.T) {
	if how, address, isChild := strings.Cut(os.Getenv("REDSYNC_EXIT"), "="); isChild {
		ctx, stop := context.WithCancel(context.Background())
		rs, err := redsync.Open(ctx, []string{address})
		err = errors.Join(err, exits[how](exiting{rs, ctx, stop}))
		stop()
		if err = errors.Join(err, rs.Close(ctx)); err != nil && !errors.Is(err, redsync.ErrNoQuorum) { // a slow machine
			panic(err)
		}
		os.Exit(map[bool]int{true: 3}[err != nil])
	}
	t.Parallel()
	server := realredis.Start(t, 1)[0]
	for how := range exits {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExitOfAProcess$")
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), "REDSYNC_EXIT="+how+"="+server.Addr()), realredis.EndWithParent()
		out, err := cmd.CombinedOutput()
		left := realredis.Must(t, server, "keys", "*")
		realredis.Must(t, server, "flushall")
		if cmd.ProcessState.ExitCode() == 3 {
			continue
		}
		require.NoError(t, err, "%s: %s", how, out)
		for _, key := range left.([]any) {
			assert.Contains(t, key, ":fence", how)
		}
	}
}
