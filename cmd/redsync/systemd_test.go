//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// This file runs the units in examples as systemd does.

// A unit has the lines of a unit file, by section and key.
type unit map[string][]string

// readUnit reads a unit file. The examples have no quotes, specifiers or variables, so readUnit knows none.
func readUnit(t *testing.T, text string) unit {
	t.Helper()
	u, section := unit{}, ""
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch key, value, found := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			require.True(t, found, line)
			require.NotContains(t, u, section+" "+key, "given twice")
			require.False(t, strings.ContainsAny(value, `"'\$%;`), line)
			u[section+" "+key] = strings.Fields(value)
		}
	}
	return u
}

// value returns what a key is set to.
func (u unit) value(t *testing.T, section, key string) string {
	t.Helper()
	require.Contains(t, u, section+" "+key)
	return strings.Join(u[section+" "+key], " ")
}

// A service is a unit on one machine.
type service struct {
	*testing.T
	unit        unit
	dir         string // stands for /usr/local/bin and /etc
	environment []string
	main        *exec.Cmd
	journal     *os.File
}

// newService returns the service of an example, in which a script stands for the program.
func newService(t *testing.T, file, program, script string, nodes []*realredis.Server) *service {
	t.Helper()
	dir := programs(t, program, script)
	list := listOf(nodes)
	if len(nodes) == 0 {
		list = "127.0.0.1:1"
	}
	replace := strings.NewReplacer("/usr/local/bin", dir, "/etc", dir, pageNodes, list).Replace
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redsync.env"), []byte(replace(textOf(t, "examples/redsync.env"))), 0o600))
	return &service{T: t, unit: readUnit(t, replace(textOf(t, "examples/"+file))), dir: dir}
}

// start starts the main process as systemd does: without a terminal, and with nothing in its environment but what systemd
// sets and what the unit says. By INVOCATION_ID this test finds the processes that systemd finds in the control group.
func (s *service) start(ctx context.Context) {
	s.Helper()
	command := s.unit["Service ExecStart"]
	s.environment = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8",
		fmt.Sprintf("INVOCATION_ID=%032x", time.Now().UnixNano()),
	}
	for line := range strings.SplitSeq(textOf(s.T, s.unit.value(s.T, "Service", "EnvironmentFile")), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			s.environment = append(s.environment, line)
		}
	}
	var err error
	s.journal, err = os.Create(filepath.Join(s.dir, "journal"))
	require.NoError(s, err)
	s.main = exec.CommandContext(ctx, command[0], command[1:]...)
	s.main.Env, s.main.Stdout, s.main.Stderr = s.environment, s.journal, s.journal
	inSession(s.main)
	require.NoError(s, s.main.Start())
	s.Cleanup(func() {
		s.signal(syscall.SIGKILL)
		_ = s.journal.Close()
	})
}

// wait waits until the main process has ended, and returns its exit status.
func (s *service) wait() int {
	_ = s.main.Wait()
	return s.main.ProcessState.ExitCode()
}

// group returns the processes of the control group.
func (s *service) group() (pids []int) {
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(s, err)
	for _, path := range found {
		environment, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(environment, []byte(s.environment[2])) {
			continue // it has ended, or is of another user
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		require.NoError(s, err)
		pids = append(pids, pid)
	}
	return pids
}

// signal sends a signal to the whole group.
func (s *service) signal(sig syscall.Signal) {
	for _, pid := range s.group() {
		_ = syscall.Kill(pid, sig)
	}
}

// file returns what the script has written into a file of its own.
func (s *service) file(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name))
	return string(text)
}

// verdict reports whether systemd would count an exit status as a success, and whether it would restart the service after it.
func (s *service) verdict(status int) (success, restarts bool) {
	is := func(key string) bool {
		for _, value := range s.unit["Service "+key] {
			if value == strconv.Itoa(status) {
				return true
			}
		}
		return false
	}
	success = status == 0 || is("SuccessExitStatus")
	return success, strings.Join(s.unit["Service Restart"], "") == "on-failure" && !success && !is("RestartPreventExitStatus")
}

// scheduler notes each TERM, and ends after one. It has a process that leaves the group.
const scheduler = `trap 'echo TERM >>"$0.terms"' TERM
setsid sleep 300 &
echo $! >"$0.escaped"
echo "$$ $REDSYNC_NAME" >"$0.started"
while [ ! -e "$0.terms" ]; do sleep 0.05; done
`

// "systemctl stop" with KillMode=mixed: TERM goes to the main process, and KILL to what is left after its end.
func TestUnitOfALeaderIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	servers := realredis.Start(t, 5)
	s := newService(t, "scheduler.service", "scheduler", scheduler, servers)
	s.start(ctx)
	require.Eventually(t, func() bool { return strings.HasSuffix(s.file("scheduler.started"), " scheduler\n") },
		time.Minute, 20*time.Millisecond, "%s", s.file("journal"))
	awaitKeys(t, servers, "scheduler", 5)
	require.Equal(t, "mixed", s.unit.value(t, "Service", "KillMode"))
	// redsync, its holder, the scheduler, and what it has started: beside the commands of the script, which come and go
	require.Eventually(t, func() bool { return len(s.group()) == 4 }, time.Minute, time.Millisecond)
	require.NoError(t, s.main.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.main.Process.Signal(syscall.SIGCONT)) // systemd always sends it, too
	status := s.wait()
	success, restarts := s.verdict(status)
	assert.True(t, success, "%d: %s", status, s.file("journal"))
	assert.False(t, restarts)
	assert.Equal(t, exitSignalBase+int(syscall.SIGTERM), status)
	assert.Less(t, keys(t, servers, "scheduler"), 3, "released by a quorum")
	assert.Equal(t, "TERM\n", s.file("scheduler.terms"), "once")
	assert.Equal(t, s.file("scheduler.escaped"), fmt.Sprintln(s.group()[0]), "what has left the process group is left")
	s.signal(syscall.SIGKILL)
	require.Eventually(t, func() bool { return len(s.group()) == 0 }, time.Minute, 20*time.Millisecond)
}

// After a TERM the program has --kill-after. systemd waits for longer, so that redsync can release.
func TestUnitOfALeaderWaitsForKillAfter(t *testing.T) {
	t.Parallel()
	u := readUnit(t, textOf(t, "examples/scheduler.service"))
	command := u["Service ExecStart"]
	j, err := parseJob(command[1], command[2:])
	require.NoError(t, err)
	seconds, err := strconv.Atoi(u.value(t, "Service", "TimeoutStopSec"))
	require.NoError(t, err)
	assert.Greater(t, time.Duration(seconds)*time.Second, j.killAfter+2*closeTimeout)
}

// A restart follows an outage, and no mistake in the unit.
func TestUnitOfALeaderIsRestarted(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 1)
	for name, c := range map[string]struct {
		spoil    func(*service)
		status   int
		restarts bool
	}{
		"no nodes":       {func(s *service) { s.unit["Service EnvironmentFile"] = []string{"/dev/null"} }, exitUsage, false},
		"no program":     {func(s *service) { require.NoError(s, os.Remove(filepath.Join(s.dir, "scheduler"))) }, exitNotFound, false},
		"not executable": {func(s *service) { require.NoError(s, os.Chmod(filepath.Join(s.dir, "scheduler"), 0o600)) }, exitNotRun, false},
		"program fails":  {func(*service) {}, 1, true},
		"outage": {func(s *service) {
			require.NoError(s, os.WriteFile(filepath.Join(s.dir, "redsync.env"), []byte("REDSYNC_NODES=127.0.0.1:1\n"), 0o600))
		}, exitNoQuorum, true},
	} {
		s := newService(t, "scheduler.service", "scheduler", "exit 1\n", servers)
		c.spoil(s)
		s.start(t.Context())
		status := s.wait()
		assert.Equal(t, c.status, status, "%s: %s", name, s.file("journal"))
		success, restarts := s.verdict(status)
		assert.False(t, success, name)
		assert.Equal(t, c.restarts, restarts, name)
	}
}

// The service of the timer runs the report on one machine. For the others the tick is a success, too.
func TestUnitOfATimerRunsOnOneMachine(t *testing.T) {
	t.Parallel()
	for range 5 {
		servers := realredis.Start(t, 5)
		var machines []*service
		var statuses []int
		said := ""
		for range 2 {
			s := newService(t, "report.service", "report", `env >"$0.ran"`+"\n", servers)
			require.Equal(t, "oneshot", s.unit.value(t, "Service", "Type"))
			s.start(t.Context())
			machines, statuses = append(machines, s), append(statuses, s.wait())
			said += s.file("journal")
		}
		if slow.MatchString(said) {
			continue
		}
		assert.Equal(t, []int{0, exitTaken}, statuses, said)
		for i, s := range machines {
			success, _ := s.verdict(statuses[i])
			assert.True(t, success)
			assert.Equal(t, i == 0, strings.Contains(s.file("report.ran"), "REDSYNC_NAME=report\n"))
			assert.NotContains(t, s.file("report.ran"), "REDSYNC_NODES")
		}
		return
	}
	t.Fatal("the servers were too slow in each try")
}

// The --min-hold of the service follows the rule of docs/cron.md, also if systemd is as late as it may be.
func TestMinHoldOfTheTimerFitsThePeriod(t *testing.T) {
	t.Parallel()
	timer, service := readUnit(t, textOf(t, "examples/report.timer")), readUnit(t, textOf(t, "examples/report.service"))
	require.Equal(t, "*:0/5", timer.value(t, "Timer", "OnCalendar"))
	delay, err := time.ParseDuration(timer.value(t, "Timer", "AccuracySec"))
	require.NoError(t, err)
	minHold, ttl := minHoldOf(t, service.value(t, "Service", "ExecStart"))
	assert.Greater(t, spreadOf(minHold, ttl, 5*time.Minute)-delay, 30*time.Second)
}
