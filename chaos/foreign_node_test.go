package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file runs node-redlock itself, from npm, in processes of Node.js.

// What is installed. There is no other version 5 of node-redlock.
const (
	redlockVersion = "5.0.0-beta.2"
	ioredisVersion = "5.11.1"
)

// envNode is the environment variable that makes a missing Node.js, npm or package registry a failure: see
// realredis.Missing.
const envNode = "REDSYNC_TEST_NODE"

const (
	installTime = 2 * time.Minute
	nodeReply   = 2 * time.Minute // longer than any operation of node-redlock lasts
)

// redlockSettings are the settings of node-redlock. The json names are its own.
type redlockSettings struct {
	DriftFactor                 float64 `json:"driftFactor"`
	RetryCount                  int     `json:"retryCount"`
	RetryDelay                  int     `json:"retryDelay"`
	RetryJitter                 int     `json:"retryJitter"`
	AutomaticExtensionThreshold int     `json:"automaticExtensionThreshold"`
}

// contestSettings are the defaults, but for the delays: with those the other side would have to wait for node-redlock.
var contestSettings = redlockSettings{DriftFactor: 0.01, RetryCount: 10, RetryDelay: 10, RetryJitter: 8, AutomaticExtensionThreshold: 500}

// ioredisOptions make a command fail at once while its node is down. By default ioredis keeps it until the node is back.
var ioredisOptions = map[string]any{"enableOfflineQueue": false, "maxRetriesPerRequest": 0, "autoResendUnfulfilledCommands": false}

// installRedlock returns a folder in which node-redlock is installed.
func installRedlock(t *testing.T) (dir string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			realredis.Missing(t, envNode, fmt.Errorf("%s is not on PATH: apt-get install nodejs npm", program))
		}
	}
	dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-package-lock", "--no-save", "--no-audit", "--no-fund",
		"--ignore-scripts", "redlock@"+redlockVersion, "ioredis@"+ioredisVersion)
	npm.WaitDelay = time.Second
	if said, err := npm.CombinedOutput(); err != nil {
		realredis.Missing(t, envNode, fmt.Errorf("npm cannot install node-redlock: %w: %.300s", err, said))
	}
	return filepath.Join(dir, "node_modules")
}

// A nodeConfig is the argument of testdata/node-redlock.cjs, which says what its parts mean.
type nodeConfig struct {
	Nodes    []string        `json:"nodes"`
	Settings redlockSettings `json:"settings"`
	Ioredis  map[string]any  `json:"ioredis"`
	Careless bool            `json:"careless"`
}

// A nodeGreeting is what the program says first.
type nodeGreeting struct {
	Redlock  string          `json:"redlock"`
	Ioredis  string          `json:"ioredis"`
	Node     string          `json:"node"`
	Settings redlockSettings `json:"settings"`
}

// A nodeCommand is a line for the program.
type nodeCommand struct {
	ID       int64  `json:"id"`
	Do       string `json:"do"`
	Name     string `json:"name,omitempty"`
	Duration int64  `json:"duration,omitempty"`
}

// A nodeAnswer is the program's answer to it.
type nodeAnswer struct {
	ID       int64   `json:"id"`
	Error    string  `json:"error"`
	Attempts int     `json:"attempts"`
	Value    string  `json:"value"`
	Left     float64 `json:"left"`
	Aborted  bool    `json:"aborted"`
}

// A nodeProcess is a process with node-redlock.
type nodeProcess struct {
	greeting nodeGreeting
	lastID   atomic.Int64

	mu      sync.Mutex
	stdin   io.WriteCloser
	waiting map[int64]chan nodeAnswer // closed when the process has ended
	ended   bool
}

// startNodeRedlock starts a process, which lives until the end of the test.
func startNodeRedlock(t *testing.T, modules string, config nodeConfig) *nodeProcess {
	t.Helper()
	argument, err := json.Marshal(config)
	require.NoError(t, err)
	cmd := exec.Command("node", "testdata/node-redlock.cjs", string(argument))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, realredis.EndWithParent()
	p := &nodeProcess{waiting: make(map[int64]chan nodeAnswer)}
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(installTime, func() { _ = cmd.Process.Kill() }) // one that does not greet
	lines := bufio.NewReader(stdout)
	greeting, err := lines.ReadBytes('\n')
	kill.Stop()
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		p.listen(lines)
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		kill := time.AfterFunc(installTime, func() { _ = cmd.Process.Kill() })
		<-listened
		_ = cmd.Wait()
		kill.Stop()
	})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(greeting, &p.greeting))
	return p
}

// listen passes on the answers until the process ends.
func (p *nodeProcess) listen(lines *bufio.Reader) {
	for {
		line, err := lines.ReadBytes('\n')
		var a nodeAnswer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		p.mu.Lock()
		if err != nil {
			p.ended = true
			for _, answer := range p.waiting {
				close(answer)
			}
			p.mu.Unlock()
			return
		}
		if answer := p.waiting[a.ID]; answer != nil {
			answer <- a
		}
		p.mu.Unlock()
	}
}

// send sends a command and returns the channel of its answer.
func (p *nodeProcess) send(c nodeCommand) (chan nodeAnswer, error) {
	line, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, errNodeEnded
	}
	answer := make(chan nodeAnswer, 1)
	p.waiting[c.ID] = answer
	_, err = p.stdin.Write(append(line, '\n'))
	return answer, err
}

var errNodeEnded = errors.New("the process of node-redlock has ended")

// do sends a command and waits for its answer.
func (p *nodeProcess) do(c nodeCommand) (nodeAnswer, error) {
	answers, err := p.send(c)
	if err != nil {
		return nodeAnswer{}, err
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, c.ID)
	}()
	timer := time.NewTimer(nodeReply)
	defer timer.Stop()
	select {
	case a, ok := <-answers:
		switch {
		case !ok:
			return a, errNodeEnded
		case a.Error != "":
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-timer.C:
		return nodeAnswer{}, fmt.Errorf("node-redlock does not answer to %v", c)
	}
}

// A nodeLock is a lock of node-redlock. Each acquire has a new ID.
type nodeLock struct {
	process *nodeProcess
	name    string
	id      int64
}

func (p *nodeProcess) newLock(name string, _ int) foreignLock {
	return &nodeLock{process: p, name: name, id: p.lastID.Add(1)}
}

func (l *nodeLock) do(what string) (nodeAnswer, error) {
	return l.process.do(nodeCommand{ID: l.id, Do: what, Name: l.name, Duration: foreignExpiry.Milliseconds()})
}

// LockContext implements foreignLock.
func (l *nodeLock) LockContext(context.Context) error {
	_, err := l.do("acquire")
	return err
}

// ExtendContext implements foreignLock.
func (l *nodeLock) ExtendContext(context.Context) (bool, error) {
	_, err := l.do("extend")
	return err == nil, err
}

// UnlockContext implements foreignLock.
func (l *nodeLock) UnlockContext(context.Context) (bool, error) {
	_, err := l.do("release")
	return err == nil, err
}

// Until implements foreignLock. Node.js computes the time left only after it was asked, so the result is not too late.
func (l *nodeLock) Until() time.Time {
	asked := time.Now()
	a, err := l.do("left")
	if err != nil {
		return time.Time{}
	}
	return asked.Add(time.Duration(a.Left * float64(time.Millisecond)))
}

// addresses returns the addresses of all servers.
func (c *contest) addresses() (all []string) {
	for _, s := range c.servers {
		all = append(all, s.Addr())
	}
	return all
}

// nodeParty starts a process, and requires that it is what we say it is.
func (c *contest) nodeParty(modules string, settings redlockSettings, careless bool) foreignParty {
	c.t.Helper()
	p := startNodeRedlock(c.t, modules, nodeConfig{c.addresses(), settings, ioredisOptions, careless})
	require.Equal(c.t, "v"+redlockVersion, p.greeting.Redlock)
	require.Equal(c.t, ioredisVersion, p.greeting.Ioredis)
	require.Equal(c.t, settings, p.greeting.Settings)
	c.t.Logf("node-redlock %s, ioredis %s %v, Node.js %s, %+v",
		p.greeting.Redlock, p.greeting.Ioredis, ioredisOptions, p.greeting.Node, p.greeting.Settings)
	return p.newLock
}

func TestForeignNodeRedlock(t *testing.T) {
	modules := installRedlock(t)
	t.Run("excludes ours and is excluded", func(t *testing.T) {
		limit, returns := foreignLimit()
		c := newContest(t, "node-redlock")
		c.runWithFault(limit, returns, []foreignParty{c.nodeParty(modules, contestSettings, false), c.nodeParty(modules, contestSettings, false)})
		c.requireExclusion(limit)
	})
	t.Run("is found if it deletes without comparing", func(t *testing.T) {
		testlength.NotShort(t)
		c := newContest(t, "careless")
		settings := contestSettings
		settings.RetryCount = 0 // an acquire releases when it gives up: so it does that often
		c.requireFound([]foreignParty{c.nodeParty(modules, settings, true)})
	})
	t.Run("runs with its settings", func(t *testing.T) { nodeRedlockRunsWith(t, modules) })
	t.Run("returns a lock that has expired", func(t *testing.T) { nodeRedlockReturnsLate(t, modules) })
}

// nodeRedlockReturnsLate shows why a holder must compare expiration with the clock: docs/wire.md says so.
func nodeRedlockReturnsLate(t *testing.T, modules string) {
	t.Helper()
	servers := realredis.Start(t, 1)
	p := startNodeRedlock(t, modules, nodeConfig{Nodes: []string{servers[0].Addr()}, Settings: contestSettings})
	servers[0].Freeze()
	defer servers[0].Thaw()
	const duration = 100
	answers, err := p.send(nodeCommand{ID: 1, Do: "acquire", Name: "a", Duration: duration})
	require.NoError(t, err)
	_, err = p.do(nodeCommand{ID: 2, Do: "left"})
	require.Error(t, err) // there is no such lock, but now the acquire has begun
	time.Sleep(3 * duration * time.Millisecond)
	servers[0].Thaw()
	a, ok := <-answers
	require.True(t, ok)
	require.Empty(t, a.Error)
	a, err = p.do(nodeCommand{ID: 1, Do: "left"})
	require.NoError(t, err)
	assert.Negative(t, a.Left)
}

// nodeRedlockRunsWith shows that each setting has its effect. A label could name settings that the library ignores.
func nodeRedlockRunsWith(t *testing.T, modules string) {
	t.Helper()
	servers := realredis.Start(t, 1)
	config := nodeConfig{
		Nodes:    []string{servers[0].Addr()},
		Settings: redlockSettings{DriftFactor: 0.25, RetryCount: 3, RetryDelay: 1, RetryJitter: 0, AutomaticExtensionThreshold: 5500},
	}
	p := startNodeRedlock(t, modules, config)
	duration := foreignExpiry.Milliseconds()
	ttl := func() int64 { return realredis.Must(t, servers[0], "pttl", "a").(int64) }

	// A quarter of 8 s is lost to drift, and 2 ms.
	_, err := p.do(nodeCommand{ID: 1, Do: "acquire", Name: "a", Duration: duration})
	require.NoError(t, err)
	a, err := p.do(nodeCommand{ID: 1, Do: "left"})
	require.NoError(t, err)
	require.Positive(t, a.Left)
	assert.LessOrEqual(t, a.Left, 5998.0)

	a, err = p.do(nodeCommand{ID: 2, Do: "acquire", Name: "a", Duration: duration})
	require.Error(t, err)
	assert.Equal(t, 4, a.Attempts)
	_, err = p.do(nodeCommand{ID: 1, Do: "release"})
	require.NoError(t, err)

	// It extends 5.5 s before the end of the validity, when the key has 7.5 s left. The default is 0.5 s.
	_, err = p.do(nodeCommand{ID: 3, Do: "using", Name: "a", Duration: duration})
	require.NoError(t, err)
	rose := false
	for last, end := ttl(), time.Now().Add(foreignPatience); !rose && time.Now().Before(end); time.Sleep(time.Millisecond) {
		now := ttl()
		rose, last = now > last && last > 4000, now
	}
	assert.True(t, rose, "no extension begins early enough")
	a, err = p.do(nodeCommand{ID: 3, Do: "leave"})
	require.NoError(t, err)
	assert.False(t, a.Aborted)
	assert.Equal(t, int64(-2), ttl())
}
