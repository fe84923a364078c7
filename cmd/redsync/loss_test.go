//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
)

// TestLoss takes the lock away in some ways. COMMAND and its child ignore TERM: both get it, then both are killed.
func TestLoss(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	for name, take := range map[string]func(name string){
		"deleted": func(name string) { deleteLock(t, servers, name) },
		"another": func(name string) {
			for _, s := range servers {
				realredis.Must(t, s, "SET", name, "another", "PX", 600_000)
			}
		},
		"forced": func(name string) {
			require.NoError(t, forced(t, servers, name))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNote(t)
			r := n.under(t, servers, "run --ttl 12 --kill-after 4 "+name, "child")
			pids := n.pids(t)
			take(name)
			n.await(t, "terminated")
			n.child().await(t, "terminated")
			r.wantStatus(exitLost)
			r.wantStderr("COMMAND gets TERM now, and KILL in", "redsync: lost: COMMAND was ended")
			awaitDead(t, pids...)
		})
	}
}

// TestLossOtherEnds: how COMMAND ends after TERM does not matter, and what it leaves behind is killed.
func TestLossOtherEnds(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	for i, onTerm := range []string{"exit 0", "exit 7", "trap - TERM; kill $$"} {
		t.Run(onTerm, func(t *testing.T) {
			t.Parallel()
			name, n := fmt.Sprintf("job%d", i), newNote(t)
			r := start(t, servers, "run --ttl 60 --kill-after 20 "+name+" -- sh -c",
				fmt.Sprintf(`trap '%s' TERM; probe "$0" & while :; do sleep 0.01; done`, onTerm), string(n))
			child := n.pid(t)
			require.NoError(t, forced(t, servers, name))
			r.wantStatus(exitLost)
			awaitDead(t, child)
		})
	}
}

// forced takes a lock from its holder.
func forced(t *testing.T, servers []*realredis.Server, name string) error {
	mutex := open(t, servers).NewMutex(name)
	status, err := mutex.Inspect(t.Context())
	if err != nil {
		return err
	}
	return mutex.ForceUnlock(t.Context(), status.Holders[0])
}

// appender is a COMMAND that ignores TERM, as a child of it does. Both append the text $1 to the file $0 all the time.
const appender = `trap "" TERM; n=0; append() { while [ $n -lt 20000 ]; do n=$((n+1)); echo $1 >>"$0"; sleep 0.001; done; }; append $1 & append $1`

// TestLossNeverTwo: a redsync that cannot extend its lock kills COMMAND before a redsync that waits can get the lock. Each
// round has another cause: the holder is stopped, or one of the two processes is killed.
func TestLossNeverTwo(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	for _, c := range []struct{ cause, ttl string }{
		{"holder stopped", "0.4"}, {"holder stopped", "1"}, {"holder stopped", "3"}, {"holder killed", "9"}, {"front killed", "9"},
	} {
		if testing.Short() && (c.ttl == "0.4" || c.ttl == "1") {
			continue // on a busy machine a front may be late by more than such a ttl allows
		}
		for round := range rounds {
			t.Run(fmt.Sprint(c.cause, c.ttl, round), func(t *testing.T) {
				t.Parallel()
				try := 0
				stall.Replay(t, 20*time.Millisecond, func() error {
					try++
					return neverTwo(t, servers, c.cause, c.ttl, fmt.Sprint(strings.ReplaceAll(c.cause, " ", "-"), c.ttl, round, try))
				})
			})
		}
	}
}

// neverTwo is a round. A redsync that suddenly gets no processor cannot kill COMMAND in time: it has --kill-after/10 and 1 % of
// the ttl for that.
func neverTwo(t *testing.T, servers []*realredis.Server, cause, ttl, name string) error {
	path := filepath.Join(t.TempDir(), "lines")
	has := func(line string) func() bool {
		return func() bool {
			text, _ := os.ReadFile(path)
			return strings.Contains(string(text), line+"\n")
		}
	}
	first := start(t, servers, "run --ttl "+ttl+" "+name+" -- sh -c", appender, path, "first")
	await(t, "the first COMMAND", has("first"))
	second := start(t, servers, "run --ttl 60 "+name+" -- sh -c", `for i in 1 2 3 4 5 6 7 8 9; do echo second >>"$0"; sleep 0.01; done`, path)
	holder := 0
	await(t, "a holder", func() bool { holder = childOf(first.pid()); return holder != 0 || first.hasEnded() })
	if holder == 0 {
		return errors.New("the first has lost the lock by itself")
	}
	want := exitLost
	switch cause {
	case "holder stopped":
		syscall.Kill(holder, syscall.SIGSTOP) // it may have lost the lock by itself
		await(t, "a holder that is stopped", func() bool { return isStopped(holder) || !isAlive(holder) })
		if strings.Contains(first.read(first.stderr), "COMMAND gets TERM now") {
			syscall.Kill(holder, syscall.SIGCONT)
		}
	case "holder killed":
		send(t, holder, syscall.SIGKILL)
	case "front killed":
		want = 128 + int(syscall.SIGKILL)
		first.signal(syscall.SIGKILL)
	}
	if one, two := first.status(), second.status(); one != want || two != 0 {
		return fmt.Errorf("status %d and %d, want %d and 0", one, two, want)
	}
	text, _ := os.ReadFile(path)
	lines := strings.Fields(string(text))
	begin := slices.Index(lines, "second")
	if begin < 0 || slices.Contains(lines[begin:], "first") {
		return fmt.Errorf("two COMMANDs have worked at the same time: %q", lines)
	}
	return nil
}

// TestLossOfNodes: COMMAND, which ignores TERM, gets it while the lock is still valid, and KILL, also if the nodes come back
// meanwhile. redsync says what is true then.
func TestLossOfNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ atKill, atEnd string }{
		"stay away": {`could not be extended, and is valid for [0-9.]+m?s more`, `lost: COMMAND was ended, and another`},
		"come back": {`was extended again after TERM, but COMMAND did not end`, `COMMAND was ended, because .* so no other process has had it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, said := realredis.Start(t, 5), ""
			for range 5 { // the nodes that come back may not answer in time
				n := newNote(t)
				r := n.under(t, servers, "run --ttl 12 job", "child")
				pids := n.pids(t)
				for _, s := range servers[:3] {
					s.Freeze()
					defer s.Thaw()
				}
				n.await(t, "terminated")
				n.child().await(t, "terminated")
				for _, s := range servers[:3] {
					if name == "come back" {
						s.Thaw()
					}
				}
				r.wantStatus(exitLost)
				awaitDead(t, pids...)
				said = r.read(r.stderr)
				late := strings.Contains(said, "the process that holds the lock is stopped") // as it seems to the front
				if !late && (name == "stay away" || strings.Contains(said, "extended again")) {
					break
				}
			}
			require.Regexp(t, `is valid for [0-9.]+s more: COMMAND gets TERM now, and KILL in [0-9.]+s\n(.*\n)*redsync: the lock `+
				c.atKill+`: COMMAND was killed\n(.*\n)*redsync: `+c.atEnd, said)
		})
	}
}

// TestLossWhileStopped: a COMMAND that is stopped when the lock is lost does not go on when it is continued.
func TestLossWhileStopped(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	for range 5 {
		if lostWhileStopped(t, servers) {
			return
		}
	}
	t.Error("COMMAND went on in each try")
}

// lostWhileStopped reports false if the nodes did not answer within checkTimeout, so that COMMAND went on.
func lostWhileStopped(t *testing.T, servers []*realredis.Server) bool {
	n := newNote(t)
	r := n.under(t, servers, "run --ttl 60 --kill-after 20 job", "child", "ticks")
	pids := n.pids(t)
	r.signal(syscall.SIGTSTP)
	awaitStopped(t, pids...)
	deleteLock(t, servers, "job") // nothing has told redsync
	before, childBefore := len(n.lines()), len(n.child().lines())
	goneOn := func() bool { return len(n.lines()) != before || len(n.child().lines()) != childBefore }
	begin := time.Now()
	r.signal(syscall.SIGCONT)
	await(t, "an end of COMMAND", func() bool { return r.hasEnded() || goneOn() })
	if goneOn() {
		require.GreaterOrEqual(t, time.Since(begin), checkTimeout)
		n.end(t)
		n.child().end(t)
		r.wantStatus(exitLost)
		return false
	}
	r.wantStatus(exitLost)
	r.wantStderr("COMMAND was killed before it could go on")
	awaitDead(t, pids...)
	require.False(t, goneOn())
	return true
}
