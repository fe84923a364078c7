//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// A console is an interactive shell on a terminal.
type console struct {
	*testing.T
	file    *os.File
	shell   *exec.Cmd
	servers []*realredis.Server

	mu     sync.Mutex
	output strings.Builder
	seen   int // how much of it the test has seen
}

const prompt = "ready> "

// newConsole starts bash.
func newConsole(t *testing.T) *console {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	c := &console{T: t, servers: realredis.Start(t, 5)}
	c.shell = program(c.servers, "bash", "--norc", "--noprofile", "--noediting", "-i")
	c.shell.Env = append(c.shell.Env, "PS1="+prompt, "TERM=dumb", "HISTFILE=")
	c.shell.SysProcAttr = nil // pty makes a session with a terminal
	file, err := pty.Start(c.shell)
	require.NoError(t, err)
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true) // else Close would wait for the end of a Read
	}
	require.NoError(t, err)
	c.file = os.NewFile(uintptr(fd), file.Name())
	go c.read()
	t.Cleanup(func() {
		c.file.Close()
		c.shell.Process.Kill()
		c.shell.Wait()
		if t.Failed() {
			t.Logf("terminal:\n%s", c.text())
		}
	})
	c.expect(prompt)
	return c
}

func (c *console) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := c.file.Read(buffer)
		c.mu.Lock()
		c.output.Write(buffer[:n])
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output.String()
}

// expect waits until the terminal shows a text that the test has not seen yet.
func (c *console) expect(text string) {
	await(c, fmt.Sprintf("%q on the terminal", text), func() bool {
		_, after, ok := strings.Cut(c.text()[c.seen:], text)
		if ok {
			c.seen = len(c.text()) - len(after)
		}
		return ok
	})
}

// key types a key.
func (c *console) key(key string) {
	if _, err := c.file.WriteString(key); err != nil {
		c.Fatal(err)
	}
}

// stop types ^Z, and waits until the shell shows its prompt.
func (c *console) stop() {
	c.key(ctrlZ)
	c.expect("Stopped")
	c.expect(prompt)
}

// enter types a line.
func (c *console) enter(format string, args ...any) {
	c.key(fmt.Sprintf(format, args...) + "\n")
}

// wantStatus fails the test unless the program has this exit status, and the shell shows its prompt.
func (c *console) wantStatus(want int) {
	c.expect(prompt)
	c.enter("echo status=$?.")
	c.expect(fmt.Sprintf("status=%d.", want))
	c.expect(prompt)
}

// The keys of a terminal.
const (
	ctrlC         = "\x03"
	ctrlD         = "\x04"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
)

// inBothModes does a test for the two ways in which COMMAND can run.
func inBothModes(t *testing.T, do func(t *testing.T, flag string)) {
	t.Parallel()
	for _, flag := range []string{"", "--foreground"} {
		t.Run("mode"+flag, func(t *testing.T) {
			t.Parallel()
			do(t, flag)
		})
	}
}

// TestTerminalKeys: ^C and ^\ reach COMMAND once. redsync goes on until COMMAND ends.
func TestTerminalKeys(t *testing.T) {
	inBothModes(t, func(t *testing.T, flag string) { //nolint:thelper // the test itself
		c, n := newConsole(t), newNote(t)
		c.enter("redsync run %s job -- probe %s", flag, n)
		pid := n.pid(t)
		c.key(ctrlC)
		n.await(t, syscall.SIGINT.String())
		c.key(ctrlBackslash)
		n.await(t, syscall.SIGQUIT.String())
		send(t, stateOf(stateOf(pid).parent).parent, syscall.SIGUSR1)
		n.await(t, syscall.SIGUSR1.String()) // takes the same way as a second signal of the keys would
		assert.Equal(t, [2]int{1, 1}, [2]int{n.count(syscall.SIGINT.String()), n.count(syscall.SIGQUIT.String())})
		assert.True(t, isHeld(t, c.servers, "job"))
		n.end(t)
		c.wantStatus(7)
		wantFree(t, c.servers, "job")
		c.enter("redsync run %s job -- sh -c 'echo run''ning; exec sleep 60'", flag)
		c.expect("running")
		c.key(ctrlC)
		c.wantStatus(128 + int(syscall.SIGINT))
		wantFree(t, c.servers, "job")
	})
}

// TestTerminalStop: ^Z stops COMMAND and gives the prompt. The lock is kept for longer than the ttl. fg and bg go on.
func TestTerminalStop(t *testing.T) {
	inBothModes(t, func(t *testing.T, flag string) { //nolint:thelper // the test itself
		c, n := newConsole(t), newNote(t)
		c.enter("redsync run %s %s job -- probe %s ticks", flag, short, n)
		pid := n.pid(t)
		goesOn := func() {
			before := n.count("tick")
			await(t, "more ticks", func() bool { return n.count("tick") > before+30 })
		}
		for _, way := range []string{"fg", "bg; fg"} {
			c.stop()
			require.True(t, isStopped(pid))
			time.Sleep(shortTTL + shortTTL/4)
			require.True(t, isHeld(t, c.servers, "job"))
			c.enter("%s", way)
			goesOn()
		}
		c.stop()
		c.enter("bg")
		c.expect(prompt)
		goesOn()
		c.enter("jobs")
		c.expect("Running")
		n.end(t)
		c.enter("wait %%1; echo status=$?.")
		c.expect("status=7.")
		wantFree(t, c.servers, "job")
	})
}

// TestTerminalStopLost: a COMMAND whose lock is lost while it is stopped does not go on.
func TestTerminalStopLost(t *testing.T) {
	inBothModes(t, func(t *testing.T, flag string) { //nolint:thelper // the test itself
		c, n := newConsole(t), newNote(t)
		c.enter("redsync run %s %s job -- probe %s ticks", flag, short, n)
		pid := n.pid(t)
		c.stop()
		before := len(n.lines())
		deleteLock(t, c.servers, "job")
		awaitDead(t, pid)
		c.enter("wait -f %%1; echo status=$?.") // not fg: the job may have ended
		c.expect(fmt.Sprintf("status=%d.", exitLost))
		assert.Len(t, n.lines(), before)
	})
}

// TestTerminalHangUp: when the terminal is closed, COMMAND ends, and the lock is released, also if COMMAND is stopped.
func TestTerminalHangUp(t *testing.T) {
	inBothModes(t, func(t *testing.T, flag string) { //nolint:thelper // the test itself
		for _, stopped := range []bool{false, true} {
			c, n := newConsole(t), newNote(t)
			c.enter(`redsync run %s job -- sh -c 'echo ready $$ >"$0"; exec sleep 60' %s`, flag, n)
			pid := n.pid(t)
			await(t, "sleep", func() bool {
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				return string(name) == "sleep\n"
			})
			holder := stateOf(pid).parent
			front := stateOf(holder).parent
			if stopped {
				c.stop()
			}
			c.file.Close()
			awaitDead(t, pid, holder, front)
			wantFree(t, c.servers, "job")
		}
	})
}

// TestTerminalUse: a COMMAND that uses the terminal works with --foreground, also as a job in the background, once it is in the
// foreground. Otherwise it stops, and redsync says why. With "stty tostop" that is so for one that writes, too.
func TestTerminalUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, command, types, shows string }{
		"read":  {"true", "head -n 1", "hello", "hello\r\nhello"},
		"write": {"stty tostop", "sh -c 'echo wri''tten'", "", "written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			console := newConsole(t)
			console.enter("%s", c.set)
			console.expect(prompt)
			used := func() {
				if c.types != "" {
					console.enter("%s", c.types)
				}
				console.expect(c.shows)
				console.wantStatus(0)
			}
			console.enter("redsync run --foreground job -- %s", c.command)
			await(t, "the lock", func() bool { return c.types == "" || isHeld(t, console.servers, "job") })
			used()
			for range 8 {
				console.enter("redsync run --foreground job -- %s &", c.command)
				console.expect(prompt)
				console.enter(`until [ -n "$(jobs -s)" ]; do sleep 0.01; done; echo sto''pped; fg`) // as soon as that can be
				console.expect("stopped\r\n")
				console.expect("redsync run")
				used()
			}
			assert.NotContains(t, console.text(), "see --foreground") // it was done
			console.enter("redsync run job -- %s", c.command)
			console.expect("redsync: COMMAND has stopped, because it wants to use the terminal: see --foreground")
			console.expect("Stopped")
			console.expect(prompt)
			console.enter("kill -KILL %%1")
			awaitFree(t, console.servers, "job")
		})
	}
}

// TestTerminalScript: in a script nobody continues a redsync that stops itself. So it does not, and ^C ends what has stopped.
func TestTerminalScript(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.enter(`bash -c 'redsync run job -- cat; echo ended=$?.'`)
	c.expect("redsync: COMMAND has stopped, because it wants to use the terminal: see --foreground")
	c.key(ctrlC)
	c.expect(fmt.Sprintf("ended=%d.", 128+int(syscall.SIGINT)))
	c.wantStatus(0)
	wantFree(t, c.servers, "job")
}
