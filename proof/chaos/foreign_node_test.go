package main

import (
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

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
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

const nodePatience = 2 * time.Minute // longer than any operation of node-redlock lasts

// contestSettings are the defaults of node-redlock, but for the delays: with those the other side would have to wait for it.
var contestSettings = map[string]float64{"driftFactor": 0.01, "retryCount": 10, "retryDelay": 10, "retryJitter": 8, "automaticExtensionThreshold": 500}

// ioredisOptions make a command fail at once while its node is down. By default ioredis keeps it until the node is back.
var ioredisOptions = map[string]any{"enableOfflineQueue": false, "maxRetriesPerRequest": 0, "autoResendUnfulfilledCommands": false}

// installRedlock returns a folder in which node-redlock is installed.
func installRedlock(t *testing.T) (dir string) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			realredis.Missing(t, envNode, fmt.Errorf("%s is not on PATH: apt-get install nodejs npm", program))
		}
	}
	dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-package-lock", "--no-save", "--no-audit", "--no-fund",
		"--ignore-scripts", "redlock@"+redlockVersion, "ioredis@"+ioredisVersion)
	npm.WaitDelay = time.Second
	if said, err := npm.CombinedOutput(); err != nil {
		realredis.Missing(t, envNode, fmt.Errorf("npm cannot install node-redlock: %w: %.300s", err, said))
	}
	return filepath.Join(dir, "node_modules")
}

// A nodeCommand is a line for the program.
type nodeCommand struct {
	ID       int64
	Do, Name string
	Duration int64
}

// A nodeAnswer is the program's answer to it.
type nodeAnswer struct {
	ID    int64
	Error string
	Left  float64
}

// A nodeProcess is a process with node-redlock.
type nodeProcess struct {
	greeting struct {
		Redlock, Ioredis, Node string
		Settings               map[string]float64
	}
	lastID  atomic.Int64
	stdin   io.WriteCloser
	waiting sync.Map      // the channels of those who wait for an answer, by ID
	gone    chan struct{} // closed when the process has ended
}

// startNodeRedlock starts a process, which lives until the end of the test.
func startNodeRedlock(t *testing.T, modules string, servers []*realredis.Server, ioredis map[string]any) *nodeProcess {
	argument, err := json.Marshal(map[string]any{"nodes": addrsOf(servers), "settings": contestSettings, "ioredis": ioredis})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", "testdata/node-redlock.cjs", string(argument))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	in, out := startPiped(t, cmd)
	p, lines := &nodeProcess{stdin: in, gone: make(chan struct{})}, json.NewDecoder(out)
	err = lines.Decode(&p.greeting)
	go p.listen(lines)
	t.Cleanup(func() {
		<-p.gone
		cmd.Wait()
	})
	require.NoError(t, err)
	return p
}

// listen passes on the answers until the process ends.
func (p *nodeProcess) listen(lines *json.Decoder) {
	defer close(p.gone)
	for {
		var a nodeAnswer
		if lines.Decode(&a) != nil {
			return
		}
		if answer, ok := p.waiting.LoadAndDelete(a.ID); ok {
			answer.(chan nodeAnswer) <- a
		}
	}
}

// send sends a command and returns the channel of its answer.
func (p *nodeProcess) send(c nodeCommand) (chan nodeAnswer, error) {
	answer := make(chan nodeAnswer, 1)
	p.waiting.Store(c.ID, answer)
	line, _ := json.Marshal(c)
	_, err := p.stdin.Write(append(line, '\n'))
	return answer, err
}

// do sends a command and waits for its answer.
func (p *nodeProcess) do(c nodeCommand) (a nodeAnswer, err error) {
	answers, err := p.send(c)
	if err != nil {
		return a, err
	}
	return p.await(answers)
}

// await waits for an answer.
func (p *nodeProcess) await(answers <-chan nodeAnswer) (a nodeAnswer, err error) {
	select {
	case a = <-answers:
		if a.Error != "" {
			err = errors.New(a.Error)
		}
	case <-p.gone:
		err = errors.New("the process of node-redlock has ended")
	case <-time.After(nodePatience):
		err = errors.New("node-redlock does not answer")
	}
	return a, err
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

// nodeParty starts a process, and requires that it is what we say it is.
func (c *contest) nodeParty(modules string) foreignParty {
	p := startNodeRedlock(c.T, modules, c.servers, ioredisOptions)
	require.Equal(c, "v"+redlockVersion, p.greeting.Redlock)
	require.Equal(c, ioredisVersion, p.greeting.Ioredis)
	require.Equal(c, contestSettings, p.greeting.Settings)
	c.Logf("%+v, %v", p.greeting, ioredisOptions)
	return p.newLock
}

func TestForeignNodeRedlock(t *testing.T) {
	modules := installRedlock(t)
	t.Run("excludes ours and is excluded", func(t *testing.T) {
		limit, returns := foreignLimit()
		c := newContest(t, "node-redlock")
		c.runWithFault(limit, returns, []foreignParty{c.nodeParty(modules), c.nodeParty(modules)})
		c.requireExclusion(limit)
	})
	t.Run("returns a lock that has expired", func(t *testing.T) { nodeRedlockReturnsLate(t, modules) })
}

// nodeRedlockReturnsLate shows why a holder must compare expiration with the clock: docs/wire.md says so.
func nodeRedlockReturnsLate(t *testing.T, modules string) {
	servers := realredis.Start(t, 1)
	p := startNodeRedlock(t, modules, servers, nil)
	servers[0].Freeze()
	defer servers[0].Thaw()
	const duration = 100
	answers, err := p.send(nodeCommand{ID: 1, Do: "acquire", Name: "a", Duration: duration})
	require.NoError(t, err)
	_, err = p.do(nodeCommand{ID: 2, Do: "left"})
	require.Error(t, err) // there is no such lock, but now the acquire has begun
	time.Sleep(3 * duration * time.Millisecond)
	servers[0].Thaw()
	_, err = p.await(answers)
	require.NoError(t, err)
	a, err := p.do(nodeCommand{ID: 1, Do: "left"})
	require.NoError(t, err)
	assert.Negative(t, a.Left)
}
