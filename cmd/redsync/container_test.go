//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// This file runs redsync as a container does.

// inheritorName is the name of a redsync that gets the orphans among its descendants, as the first process of a container does.
const inheritorName = "inheritor"

func init() {
	roles[inheritorName] = func() {
		path, err := exec.LookPath("redsync")
		if err == nil {
			err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		}
		if err == nil {
			err = syscall.Exec(path, append([]string{"redsync"}, os.Args[1:]...), os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestOrphansAreReaped: what COMMAND leaves behind becomes no zombie, in its group or not, and the status stays COMMAND's.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	for _, command := range []string{"run", "lead"} {
		n := newNote(t)
		r := launch(t, program(servers, inheritorName, command, "job", "--", "sh", "-c",
			`(probe "$0.1" &); (setsid probe "$0.2" &); (sleep 0.01 &); (sleep 0.01 &); exec probe "$0"`, string(n)))
		n.pid(t)
		for _, orphan := range []note{n + ".1", n + ".2"} {
			pid := orphan.pid(t)
			await(t, "an orphan", func() bool { return stateOf(pid).parent == r.pid() })
			orphan.end(t)
			await(t, "no process", func() bool { return stateOf(pid).letter == 0 })
		}
		await(t, "a holder, and no other child", func() bool { return len(childrenOf(r.pid())) == 1 })
		r.ends(servers, n)
	}
}

// TestGroupOfZombiesIsGone: a process that nobody waits for does not count.
func TestGroupOfZombiesIsGone(t *testing.T) {
	t.Parallel()
	group := 0
	join := func() *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
		require.NoError(t, cmd.Start())
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		require.NoError(t, cmd.Process.Kill())
		await(t, "a zombie", func() bool { return stateOf(cmd.Process.Pid).letter == 'Z' })
	}
	first := join()
	group = first.Process.Pid
	second := join()
	assert.False(t, isGone(group)) // both run
	kill(first)
	assert.False(t, isGone(group)) // one runs
	kill(second)
	assert.NoError(t, syscall.Kill(-group, 0)) // the group is still there
	assert.True(t, isGone(group))              // none runs
	first.Wait()
	second.Wait()
	assert.True(t, isGone(group))

	for stat, zombie := range map[string]bool{
		"7 (a) Z 0) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1":      true,
		"7 (threads run) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 1": false,
		"7 (Z) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1":           false,
	} {
		of, isZombie := groupIn(stat)
		assert.Equal(t, 7, of, stat)
		assert.Equal(t, zombie, isZombie, stat)
	}
}

// TestWithoutProc: without /proc redsync finds its own program, or says what it needs.
func TestWithoutProc(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	without := func(call string) *run {
		return launch(t, program(servers, "unshare", "--user", "--map-root-user", "--mount", "bash", "-c", "mount -t tmpfs none /proc && "+call))
	}
	if r := without("exit 5"); r.status() != 5 {
		t.Skip("this user may not hide /proc: " + r.read(r.stderr))
	}
	without("exec redsync run job -- sh -c 'test ! -e /proc/self && exit 3'").wantStatus(3)
	r := without(`path=$(type -P redsync) && PATH=/none exec -a redsync "$path" run job -- /bin/true`)
	r.wantStatus(exitInternal)
	r.wantStderr("redsync: redsync cannot find its own program: mount /proc, or call redsync by its path")
}
