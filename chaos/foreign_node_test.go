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
func (c *contest) nodeParty(modules string, settings redlockSettings) foreignParty {
	c.t.Helper()
	p := startNodeRedlock(c.t, modules, nodeConfig{c.addresses(), settings, ioredisOptions})
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
		c.runWithFault(limit, returns, []foreignParty{c.nodeParty(modules, contestSettings), c.nodeParty(modules, contestSettings)})
		c.requireExclusion(limit)
	})
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
