package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests what processes leave on the nodes that exit right after a Close whose context has ended.

// envExit makes TestExitLeavesNothing a child: the way in which it exits, and the addresses of the nodes.
const envExit = "REDSYNC_TEST_EXIT"

// exitSlow is the status of a child that has needed about as long as its nodes had to answer. It may have left keys.
const exitSlow = 3

// An exiting is a process that is about to exit: stop ends ctx, as a signal does.
type exiting struct {
	*redsync.Redsync
	ctx  context.Context //nolint:containedctx // of the process
	stop func()
}

func (e exiting) locks(options ...redsync.Option) error {
	return e.NewMutex("x", append(options, redsync.WithTries(0))...).LockContext(e.ctx)
}

func (e exiting) do(fn func(context.Context) error) error {
	return e.Do(e.ctx, "x", fn, redsync.WithTries(0))
}

// work is the function of a Do that the signal ends.
func (e exiting) work(context.Context) error {
	e.stop()
	return nil
}

// exits are the ways in which a process may hold locks, or ask for one, when its context ends.
var exits = map[string]func(e exiting) error{
	"plain": func(e exiting) error { return e.locks() },
	"readers": func(e exiting) error {
		return errors.Join(e.locks(redsync.WithShared()), e.locks(redsync.WithShared()))
	},
	"permits": func(e exiting) error {
		return errors.Join(e.locks(redsync.WithPermits(3)), e.locks(redsync.WithPermits(3)))
	},
	"fenced":   func(e exiting) error { return e.locks(redsync.WithFencing()) },
	"fair":     func(e exiting) error { return e.locks(redsync.WithFair()) },
	"watchdog": func(e exiting) error { return e.locks(redsync.WithWatchdog()) },
	"owner":    func(e exiting) error { return e.locks(redsync.WithOwner("it")) },
	"joint":    func(e exiting) error { return e.locks() }, // see exit
	"several":  func(e exiting) error { return e.NewMultiMutex(both, redsync.WithTries(0)).LockContext(e.ctx) },
	"Do":       func(e exiting) error { return e.do(e.work) },
	"TryDo": func(e exiting) error {
		_, err := e.TryDo(e.ctx, "x", e.work)
		return err
	},
	"nested": func(e exiting) error {
		return e.do(func(ctx context.Context) error { return e.Do(ctx, "x", e.work) })
	},
	"joined": func(e exiting) error { // Close comes while both functions run
		began := make(chan struct{})
		go func() {
			_ = e.do(func(ctx context.Context) error {
				return e.Do(ctx, "x", func(context.Context) error { close(began); select {} })
			})
		}()
		<-began
		return nil
	},
	"Lead": func(e exiting) error { return e.Lead(e.ctx, "x", e.work) },
	"waiting": func(e exiting) error {
		err := e.locks()
		go func() { _ = e.locks(redsync.WithFair()) }()
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // it may have begun to wait: either way nothing may be left
		return err
	},
	"asking": func(e exiting) error {
		go func() { _ = e.locks() }()
		return nil
	},
	"Unlock": unlockedAtExit, "Unlock alone": unlockedAtExit,
}

func unlockedAtExit(e exiting) error {
	m := e.NewMutex("x", redsync.WithTries(0))
	err := m.LockContext(e.ctx)
	e.stop()
	_, failed := m.UnlockContext(e.ctx)
	if errors.Is(failed, context.Canceled) {
		failed = nil // it says so, although it has waited for the release
	}
	return errors.Join(err, failed)
}

// exit is a child, and exits.
func exit(how string, addresses []string) {
	ctx, stop := context.WithCancel(context.Background())
	n := len(addresses)
	open := func() (*redsync.Redsync, error) { return redsync.Open(ctx, addresses) }
	if how == "joint" {
		open = func() (*redsync.Redsync, error) { return redsync.OpenJoint(ctx, addresses[:n/2+1], addresses[n/2:]) }
	}
	rs, err := open()
	if err == nil {
		err = exits[how](exiting{rs, ctx, stop})
	}
	stop()
	start := time.Now()
	if rs != nil && how != "Unlock alone" {
		err = errors.Join(err, rs.Close(ctx))
	}
	switch {
	case time.Since(start) > 300*time.Millisecond || errors.Is(err, redsync.ErrNoQuorum) && strings.Contains(err.Error(), "no answer within"):
		os.Exit(exitSlow)
	case err != nil:
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestExitLeavesNothing(t *testing.T) {
	if how, addresses, child := strings.Cut(os.Getenv(envExit), "="); child {
		exit(how, strings.Split(addresses, ","))
	}
	t.Parallel()
	servers := realredis.Start(t, 5)
	program, err := os.Executable()
	require.NoError(t, err)
	slow := 0
	for range testlength.Of(1, 1, 12) {
		for _, how := range slices.Sorted(maps.Keys(exits)) {
			for _, n := range []int{1, 5} {
				if testlength.InGate(0, 0, 1, 1) == 0 && (len(how)%2 == 0) != (n == 1) {
					continue // each way once
				}
				var addresses []string
				for _, s := range servers[:n] {
					addresses = append(addresses, s.Addr())
				}
				cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestExitLeavesNothing$")
				cmd.Env = append(os.Environ(), envExit+"="+how+"="+strings.Join(addresses, ","))
				cmd.SysProcAttr = realredis.EndWithParent()
				out, err := cmd.CombinedOutput()
				left := 0 // keys but the registers of fencing tokens
				for _, s := range servers[:n] {
					keys, err := s.Do("keys", "*")
					require.NoError(t, err)
					for _, key := range keys.([]any) {
						if !strings.HasSuffix(key.(string), ":fence") {
							left++
						}
					}
					_, err = s.Do("flushall")
					require.NoError(t, err)
				}
				if cmd.ProcessState.ExitCode() == exitSlow {
					slow++
					continue
				}
				require.NoError(t, err, "%s on %d: %s", how, n, out)
				if how == "Unlock alone" && left <= n/2 {
					continue // Unlock waits for a quorum
				}
				require.Zero(t, left, "%s on %d", how, n)
			}
		}
	}
	t.Log("slow children:", slow)
}
