package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// envChild is the environment variable with the orders for a child. If it is set, TestObjectionsChild is a child.
const envChild = "OBJECTIONS_CHILD"

// orders say what a child process must do. It opens a library, waits for a line on its standard input, and locks.
// After the next line it writes to the data, without asking whether it still holds the lock.
type orders struct {
	Library string
	Addrs   []string
	Set     setting
	Once    bool   // it makes one attempt to lock
	Data    string // the address of the server with the data
}

// dataKey is the key of the data that the children write.
const dataKey = "data"

// A said is one message from a child.
type said struct {
	What string // one of the following
	Text string // of an error

	// With saidWoke: Held is whether the library told the holder, on its first look after
	// a pause, that it still holds the lock. Longer is how long the library went on to do so.
	Held   bool
	Longer time.Duration
}

const (
	saidOpen   = "open"
	saidLocked = "locked"
	saidFailed = "failed"
	saidWoke   = "woke"
	saidWrote  = "wrote"
)

// saidMark begins a line that is meant for the parent.
const saidMark = "said: "

// pauseSeen is the least time between two looks from which a child concludes that it was
// stopped. A machine that stalls causes shorter gaps.
const pauseSeen = paused / 2

// TestObjectionsChild is not a test: it runs a child if a scene has started the test binary as one.
func TestObjectionsChild(t *testing.T) {
	text := os.Getenv(envChild)
	if text == "" {
		t.Skip("this is no test: the scenes of TestObjections start it as a child process")
	}
	var o orders
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	ctx, cancel := context.WithTimeout(t.Context(), 2*scenePatience)
	defer cancel()
	require.NoError(t, o.obey(ctx, os.Stdin))
}

func say(s said) {
	text, _ := json.Marshal(s) // Marshal cannot fail: no field has a type that could
	fmt.Fprintf(os.Stdout, "\n%s%s\n", saidMark, text)
}

func (o orders) obey(ctx context.Context, in io.Reader) error {
	library := slices.IndexFunc(libraries, func(a accused) bool { return a.name == o.Library })
	p, err := libraries[library].open(o.Addrs, o.Set)
	if err != nil {
		return err
	}
	defer p.Close()
	lines := bufio.NewReader(in)
	if err := warm(ctx, p); err != nil {
		return err
	}
	say(said{What: saidOpen})
	if _, err := lines.ReadString('\n'); err != nil {
		return nil //nolint:nilerr // the end of the orders
	}
	lock := p.Lock
	if o.Once {
		lock = p.TryLock
	}
	g, err := lock(ctx, sceneLock)
	switch {
	case err != nil:
		say(said{What: saidFailed, Text: err.Error()})
		lines.ReadString('\n') // do not end yet: the scene may be about to stop this process
		return nil
	case !g.Held():
		say(said{What: saidFailed, Text: "it was acquired, and is over"})
		return nil
	}
	go watchForPause(ctx, g, time.Now()) // takes the time here, because the goroutine may start only after the pause
	say(said{What: saidLocked})
	if _, err := lines.ReadString('\n'); err != nil {
		return nil //nolint:nilerr // the end of the orders
	}
	say(o.write(ctx, g))
	return nil
}

// watchForPause waits for a pause that begins after last. Then it says whether the library still tells the holder that
// it holds g.
func watchForPause(ctx context.Context, g grip, last time.Time) {
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		held := g.Held()
		now := time.Now()
		if now.Sub(last) < pauseSeen {
			last = now
			continue
		}
		if !g.Held() && held { // the first answer may be from before the pause
			held = false
		}
		for held && g.Held() && time.Since(now) < scenePatience/4 {
			time.Sleep(time.Millisecond)
		}
		say(said{What: saidWoke, Held: held, Longer: time.Since(now)})
		return
	}
}

// write writes to the data. It uses the token of g if g has one.
func (o orders) write(ctx context.Context, g grip) said {
	data := redis.NewClient(&redis.Options{Addr: o.Data})
	defer data.Close()
	if err := writeData(ctx, data, "the paused one", g.Token); err != nil {
		return said{What: saidFailed, Text: err.Error()}
	}
	return said{What: saidWrote}
}

func writeData(ctx context.Context, data *redis.Client, text string, token uint64) error {
	if token != 0 {
		return fencing.NewRedis(data).Set(ctx, dataKey, text, token, 0)
	}
	return data.Set(ctx, dataKey, text, 0).Err()
}

// A child is a process that obeys orders.
type child struct {
	*testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan said // closed when the process has ended
}

// startChild starts a child, and waits until the child has opened its library.
func (s *stage) startChild(o orders) *child {
	o.Library = s.accused.name
	text, err := json.Marshal(o)
	require.NoError(s, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestObjectionsChild$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), envChild+"="+string(text))
	in, out := startPiped(s.T, cmd)
	c := &child{s.T, cmd, in, make(chan said, 8)}
	go c.listen(out)
	s.Cleanup(c.kill)
	c.next(saidOpen)
	return c
}

// startPiped starts a process and returns its stdin and stdout.
func startPiped(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, realredis.EndWithParent()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return in, out
}

func (c *child) listen(out io.Reader) {
	defer close(c.lines)
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		var s said
		if text, ok := strings.CutPrefix(scanner.Text(), saidMark); ok && json.Unmarshal([]byte(text), &s) == nil {
			c.lines <- s
		}
	}
	c.cmd.Wait() // how it ended does not matter
}

// next returns the next message of the child. It fails the test if What of the message is not among what.
func (c *child) next(what ...string) said {
	select {
	case s, ok := <-c.lines:
		if ok && slices.Contains(what, s.What) {
			return s
		}
		c.Fatalf("the child said %+v, want %v", s, what)
	case <-time.After(scenePatience):
		c.Fatalf("the child said nothing in time, want %v", what)
	}
	return said{}
}

// goOn lets the child take its next step.
func (c *child) goOn() {
	_, err := io.WriteString(c.stdin, "\n")
	require.NoError(c, err)
}

// stop stops the process, and returns when it has stopped. As after a long garbage
// collection, data that arrives meanwhile waits for the process, and its timers are
// overdue when it goes on.
func (c *child) stop() {
	require.NoError(c, realredis.Pause(c.cmd.Process))
	_, ok := within(scenePatience, c.stopped)
	require.True(c, ok)
}

func (c *child) cont() {
	require.NoError(c, realredis.Resume(c.cmd.Process))
}

// stopped reports whether all threads of the process have stopped. One thread may still run
// after another one has received the signal.
func (c *child) stopped() bool {
	if runtime.GOOS != "linux" {
		time.Sleep(pauseSeen / 4)
		return true
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.cmd.Process.Pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil || !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return len(tasks) > 0
}

// kill ends the process, stopped or not, and returns when it has ended.
func (c *child) kill() {
	c.cmd.Process.Kill() // it may have ended
	c.stdin.Close()      // only after Kill, because a child whose input ends would unlock
	for range c.lines {
		continue
	}
}
