//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// ending are the signals that redsync passes on, or ends at while it waits for the lock.
var ending = []syscall.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// TestSignalsReachGroup: each signal reaches COMMAND and its child once. redsync holds the lock until COMMAND has ended.
func TestSignalsReachGroup(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run job", "child")
	n.pid(t)
	for _, s := range ending {
		r.signal(s)
		n.await(t, s.String())
		n.child().await(t, s.String())
		require.True(t, isHeld(t, servers, "job") && !r.hasEnded(), s)
	}
	child := n.child().pid(t)
	r.ends(servers, n)
	for _, s := range ending {
		assert.Equal(t, [2]int{1, 1}, [2]int{n.count(s.String()), n.child().count(s.String())}, s)
	}
	assert.True(t, isAlive(child))
	n.child().end(t)
	awaitDead(t, child)
}

// TestSignalsForeground: with --foreground a signal reaches COMMAND alone.
func TestSignalsForeground(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run --foreground job", "child")
	assert.Equal(t, r.pid(), stateOf(n.pid(t)).group)
	for _, s := range ending {
		r.signal(s)
		n.await(t, s.String())
	}
	n.child().end(t)
	awaitDead(t, n.child().pid(t))
	assert.Len(t, n.child().lines(), 1) // no signal
	r.ends(servers, n)
}

// TestSignalsBeforeLock sends a signal at some moment between the start of redsync and the start of COMMAND: while it
// connects, in its first attempt, in the queue, or just when it gets the lock. COMMAND does not catch signals, so the status
// is the same at all moments. No lock is left on the nodes, and no place in a queue.
func TestSignalsBeforeLock(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	random := rand.New(rand.NewPCG(47, 47))
	moments := 18
	if testing.Short() {
		moments = 6 // each signal once
	}
	for i := range moments {
		s, delay := ending[i%len(ending)], time.Duration(random.Int64N(int64(150*time.Millisecond)))
		name := fmt.Sprintf("job%02d", i)
		var before *run
		n := newNote(t)
		if i%2 == 1 { // there is a queue
			before = n.under(t, servers, "run --fair --ttl 30 "+name)
			n.pid(t)
		}
		r := start(t, servers, "run --fair --ttl 30 "+name+" -- sh -c", "ulimit -c 0; exec sleep 60")
		if s != syscall.SIGTERM && s != syscall.SIGINT && s != syscall.SIGHUP {
			r.holder() // before main begins, Go itself catches the others
		}
		time.Sleep(delay)
		if i%4 == 3 { // the lock becomes free at about the same time
			n.end(t)
		}
		r.signal(s)
		assert.Equal(t, 128+int(s), r.status(), "%v after %v", s, delay)
		if i%4 == 1 && s != syscall.SIGINT { // it waited
			r.wantStderr("redsync: ended by the signal")
		}
		if before != nil {
			n.end(t)
			before.wantStatus(7)
		}
		wantFree(t, servers, name)
	}
	await(t, "an end of all queues", func() bool {
		for _, s := range servers {
			if len(realredis.Must(t, s, "KEYS", "*job*").([]any)) > 0 {
				return false
			}
		}
		return true
	})
}

// queues returns on how many servers somebody waits for the lock "job".
func awaitQueue(t *testing.T, servers []*realredis.Server, name string) {
	await(t, "a place in the queue", func() bool { return keys(t, servers, "{"+name+"}:queue") == len(servers) })
}

// TestNohup: a signal that is ignored where redsync was started is ignored by COMMAND, too.
func TestNohup(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	dir := t.TempDir()
	r := launch(t, program(servers, "sh", "-c", `trap "" HUP; exec redsync run job -- sh -c 'echo >"$0"/begun; while [ ! -e "$0"/end ]; do sleep 0.01; done; exit 5' "$0"`, dir))
	await(t, "COMMAND", func() bool { return exists(filepath.Join(dir, "begun")) })
	r.signal(syscall.SIGHUP)
	send(t, r.holder(), syscall.SIGHUP)
	send(t, childOf(r.holder()), syscall.SIGHUP)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	r.wantStatus(5)
}

// TestInherited compares what a COMMAND gets from its parent with redsync and without. (Go itself unblocks HUP, INT, QUIT and
// TERM, and takes no notice that a signal is ignored, except HUP and INT.)
func TestInherited(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	script := filepath.Join(t.TempDir(), "inherited")
	text := `grep -E "^(Sig(Blk|Ign|Cgt)|Umask|NoNewPrivs|Seccomp):" /proc/self/status
ulimit -aS; ulimit -aH; umask; pwd
ls -l /proc/self/fd | sed "s/.* \([0-9]* ->\)/\1/; /\/proc\//d; s/ -> \(pipe\|socket\):.*/ \1/" | grep -v "^total"
cat <&5
echo "$1 $2 $#"`
	require.NoError(t, os.WriteFile(script, []byte(text), 0o600))
	around := func(set string) string {
		return set + `; umask 027; ulimit -c 0; ulimit -n 200; cd /; exec 5<<E 9>/dev/null 0</dev/null
text
E
exec "$@"`
	}
	for name, set := range map[string][]string{
		"default": {"env"},
		"ignored": {"env", "--ignore-signal=HUP", "--ignore-signal=INT"},
		"blocked": {"env", "--block-signal=USR1", "--block-signal=WINCH"},
	} {
		call := append(set, "bash", "-c", around("true"), "sh")
		if err := exec.Command(set[0], append(set[1:], "true")...).Run(); err != nil {
			t.Logf("%s is left out: env has no such option", name)
			continue
		}
		command := []string{"bash", script, "an argument", ""}
		plain := launch(t, program(servers, append(call, command...)...))
		plain.wantStatus(0)
		locked := launch(t, program(servers, append(append(call, "redsync", "run", "job", "--"), command...)...))
		locked.wantStatus(0)
		saw := func(r *run) string {
			return strings.NewReplacer(r.stdout, "OUT", r.stderr, "ERR").Replace(r.read(r.stdout))
		}
		assert.Equal(t, saw(plain), saw(locked), name)
		assert.Contains(t, saw(locked), "text\nan argument  2")
	}
}
