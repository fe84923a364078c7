package redsync_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file runs the shell commands of docs/operating.md and docs/permissions.md on real servers with passwords.

// fiveHosts are the nodes of the page.
const fiveHosts = `"host1 host2 host3 host4 host5"`

// An operation is a shell in which the names of the page's nodes lead to servers.
type operation struct {
	*testing.T

	servers []*realredis.Server
	path    string
	pages   string
}

func newOperation(t *testing.T) *operation {
	t.Helper()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		realredis.Missing(t, realredis.Env, err)
	}
	o := &operation{T: t, path: t.TempDir(), pages: read(t, "../docs/operating.md") + read(t, "../docs/permissions.md")}
	o.servers = realredis.Start(t, 3, "--user", "operator", "on", ">PASSWORD", "~*", "&*", "+@all",
		"--user", "locker", "on", ">OLD", "~*", "&*", "+@all", "--requirepass", "default's")
	hosts := ""
	for i, s := range o.servers {
		_, port, err := net.SplitHostPort(s.Addr())
		require.NoError(t, err)
		hosts += fmt.Sprintf("host%d) port=%s ;;\n", i+1, port)
	}
	o.program("redis-cli", fmt.Sprintf("case $2 in\n%sesac\nshift 2\nexec '%s' -p $port \"$@\"", hosts, cli))
	o.program("systemctl", fmt.Sprintf("touch '%s/restart.'$2\nwhile [ -e '%[1]s/restart.'$2 ]; do sleep 0.01; done", o.path))
	return o
}

func (o *operation) program(name, script string) {
	o.Helper()
	err := os.WriteFile(filepath.Join(o.path, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700) //nolint:gosec // the shell runs it
	require.NoError(o, err)
}

// block returns the block of the pages that begins so.
func (o *operation) block(begins string) string {
	o.Helper()
	found := regexp.MustCompile("(?ms)^```\n(" + regexp.QuoteMeta(begins) + ".*?)^```$").FindStringSubmatch(o.pages)
	require.NotNil(o, found, begins)
	return found[1]
}

// runs runs commands after the lines that the page says all need. change changes the texts of the page. It returns what the
// shell has printed.
func (o *operation) runs(commands string, change ...string) string {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), time.Minute)
	defer cancel()
	script := o.block("nodes=") + commands
	change = append(change, fiveHosts, `"host1 host2 host3"`, "sleep 60", "sleep 0.5", "-ge 18", "-ge 1")
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.NewReplacer(change...).Replace(script)) //nolint:gosec // of the page
	cmd.Env = append(os.Environ(), "PATH="+o.path+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(o, ctx.Err(), "%s", out)
	o.Logf("%s\n%v %s", script, err, out)
	return string(out)
}

// restarts restarts the servers that systemctl is asked to, until the test ends. It returns how many by now.
func (o *operation) restarts() func() int {
	all, ctx, done := make(chan int, 1), o.Context(), make(chan struct{})
	all <- 0
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(10 * ms) {
			for i, s := range o.servers {
				asked := filepath.Join(o.path, fmt.Sprintf("restart.host%d", i+1))
				if _, err := os.Stat(asked); err != nil {
					continue
				}
				s.Kill()
				if !assert.NoError(o, s.Relaunch()) {
					return
				}
				all <- <-all + 1
				_ = os.Remove(asked)
			}
		}
	}()
	o.Cleanup(func() { <-done })
	return func() int {
		n := <-all
		all <- n
		return n
	}
}

// locker returns a program that logs in with a password, and its log.
func (o *operation) locker(password string) (*redsync.Redsync, *safeBuffer) {
	var clients []*redis.Client
	for _, s := range o.servers {
		c := redis.NewClient(&redis.Options{
			Addr: s.Addr(), Username: "locker", Password: password,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // else Close leaves goroutines
		})
		o.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	log := &safeBuffer{}
	rs := on(clients).With(redsync.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	closesSoon(o.T, rs)
	return rs, log
}

// The loop restarts all nodes in turn, with a password. With a wrong one it says so, and restarts none.
func TestRollingRestartOfNodesWithAPassword(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	o := newOperation(t)
	restarted := o.restarts()
	loop := o.block("for node in $nodes; do\n  expect uptime")
	assert.Empty(t, o.runs(loop))
	assert.Equal(t, 3, restarted())

	for change, says := range map[[2]string]string{
		{"=PASSWORD", "=another"}:                                             "host1: AUTH failed: WRONGPASS",
		{"export REDISCLI_AUTH=PASSWORD", ""}:                                 "host1: NOAUTH",
		{fiveHosts, "nohost"}:                                                 "nohost: ",
		{`systemctl --host "$node" restart`, "false #"}:                       "",
		{`restart redis ||`, `restart redis && export REDISCLI_AUTH=lost ||`}: "host1: AUTH failed: WRONGPASS",
	} {
		before := restarted()
		out := o.runs(loop, change[:]...)
		assert.Contains(t, out, says)
		assert.LessOrEqual(t, strings.Count(out, "host"), 1+strings.Count(out, "nohost"), "it goes on: %s", out)
		if !strings.Contains(change[1], "lost") {
			assert.Equal(t, before, restarted())
		}
	}
}

// The commands for a lock that is stuck, with a password.
func TestALockThatIsStuckIsBrokenWithAPassword(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	o := newOperation(t)
	rs, _ := o.locker("OLD")
	m := locked(t, rs.NewMutex("orders:17"))
	lines := strings.SplitAfter(o.block("ask --raw GET orders:17"), "\n")
	require.Eventually(t, func() bool { // two nodes suffice for the lock; an extension acquires the third
		confirmed(t, m.Extend)
		return strings.Count(o.runs("for node in $nodes; do "+lines[0]+"done"), m.Value()) == len(o.servers)
	}, time.Minute, 10*ms)
	for i := range o.servers {
		node := fmt.Sprintf("node=host%d\n", i+1)
		value := strings.TrimSpace(o.runs(node + lines[0]))
		assert.Equal(t, m.Value(), value)
		assert.Equal(t, "1\n", o.runs(node+lines[1], "VALUE", value))
		assert.Contains(t, o.runs(node+lines[0], "=PASSWORD", "=another"), "WRONGPASS")
	}
	locked(t, rs.NewMutex("orders:17"))
}

// The password changes while programs lock: none loses its lock, and the program that was forgotten is found.
func TestPasswordChanges(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	o := newOperation(t)
	forgotten, old := o.locker("OLD")
	m := locked(t, forgotten.NewMutex("held before", withWatchdog))
	o.runs(o.block("for node in $nodes; do expect OK"))
	deployed, log := o.locker("NEW")
	held := locked(t, deployed.NewMutex("held", withWatchdog))
	removes := o.block("for node in $nodes; do\n  expect OK ACL SETUSER locker '<OLD'")
	assert.Empty(t, o.runs(removes, fiveHosts, "host1"))
	require.Eventually(t, func() bool { return strings.Contains(old.String(), "WRONGPASS") }, time.Minute, 10*ms)
	require.NoError(t, m.Err())
	o.runs(o.block("for node in $nodes; do expect OK"), fiveHosts, "host1", "NEW", "OLD") // add it again
	require.Eventually(t, func() bool { return strings.Contains(old.String(), "node is up again") }, time.Minute, 10*ms)
	confirmed(t, m.Unlock)

	assert.Empty(t, o.runs(removes))
	require.NoError(t, held.Err())
	confirmed(t, held.Extend)
	confirmed(t, held.Unlock)
	assert.NotContains(t, log.String(), "WRONGPASS")
	late, _ := o.locker("OLD")
	require.ErrorContains(t, late.NewMutex("held").TryLock(), "WRONGPASS")
}
