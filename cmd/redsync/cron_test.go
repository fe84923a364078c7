//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// A crontab is what cron reads: the environment of its jobs, the fields of the time, and the command line.
type crontab struct {
	home        string
	environment []string
	fields      []string
	line        string
}

// readCrontab reads the example as cron does.
func readCrontab(t *testing.T, text string) (c crontab) {
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case regexp.MustCompile(`^\w+=`).MatchString(line):
			c.environment = append(c.environment, line)
		default:
			require.Empty(t, c.line) // one job
			words := strings.SplitN(line, " ", 6)
			require.Len(t, words, 6)
			c.fields, c.line = words[:5], words[5]
		}
	}
	require.NotContains(t, c.line, "%") // cron makes a line feed of it
	return c
}

// job returns the process that cron starts: without a terminal, with little in its environment, and with an empty stdin.
// Its output is the mail.
func (c crontab) job(ctx context.Context) *exec.Cmd {
	job := exec.CommandContext(ctx, "/bin/sh", "-c", c.line)
	job.Env = append([]string{"HOME=" + c.home, "LOGNAME=report", "SHELL=/bin/sh"}, c.environment...)
	job.Dir, job.Stdout = c.home, new(bytes.Buffer)
	job.Stderr = job.Stdout
	inSession(job)
	return job
}

// reportOn returns the example on these nodes. Its program notes each run in a file.
func reportOn(t *testing.T, nodes string) crontab {
	home := t.TempDir()
	self := must(exec.LookPath("redsync"))
	require.NoError(t, os.Symlink(self, filepath.Join(home, "redsync")))
	require.NoError(t, os.WriteFile(filepath.Join(home, "report"), []byte("#!/bin/sh\necho \"$REDSYNC_NAME\" >>\"$0.runs\"\n"), 0o700))
	c := readCrontab(t, strings.NewReplacer("/usr/local/bin", home, pageNodes, nodes).Replace(textOf("examples/report.cron")))
	c.home = home
	return c
}

// inSession gives a process a session of its own. All of its process group ends with the context, so that nothing is left
// that waits for a lock.
func inSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
}

// Three machines start the job in the same moment, and a fourth one later, because its clock is behind. One of them runs
// it, and cron has no mail to send.
func TestCrontabRunsTheJobOnOneMachine(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 5 {
		c := reportOn(t, listOf(realredis.Start(t, 5)))
		var jobs []*exec.Cmd
		for range 3 {
			job := c.job(ctx)
			require.NoError(t, job.Start())
			jobs = append(jobs, job)
		}
		for _, job := range jobs {
			job.Wait()
		}
		jobs = append(jobs, c.job(ctx))
		jobs[3].Run()
		said := ""
		for _, job := range jobs {
			said += fmt.Sprint(job.Stdout)
		}
		if strings.Contains(said, "answer") { // "no answer within", on a slow machine
			continue
		}
		require.NoError(t, ctx.Err(), said)
		assert.Empty(t, said)
		for _, job := range jobs {
			assert.Zero(t, job.ProcessState.ExitCode())
		}
		assert.Equal(t, "report\n", textOf(filepath.Join(c.home, "report.runs")))
		return
	}
	t.Fatal("the servers were too slow in each try")
}

// In an outage each machine has something to mail.
func TestCrontabMailsAnOutage(t *testing.T) {
	t.Parallel()
	c := reportOn(t, "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
	job := c.job(t.Context())
	job.Run()
	assert.Equal(t, exitNoQuorum, job.ProcessState.ExitCode())
	assert.Regexp(t, `^redsync: cannot connect: `, job.Stdout)
	assert.NoFileExists(t, filepath.Join(c.home, "report.runs"))
}

// minHoldOf returns the values of --min-hold and --ttl in a command line.
func minHoldOf(t *testing.T, line string) (minHold, ttl time.Duration) {
	words := strings.Fields(line)
	require.Equal(t, []string{"redsync", "run"}, []string{filepath.Base(words[0]), words[1]})
	j := must(parseJob("run", words[2:]))
	return j.minHold, j.ttl
}

// spreadOf returns how far the starts of one tick may lie apart, by the rule of docs/cron.md.
func spreadOf(minHold, ttl, period time.Duration) time.Duration {
	deadlines := min(2*ttl/20, 4*time.Second) // two node deadlines, 5 % of the expiry each
	return min(minHold-deadlines, period-deadlines-minHold*101/100)
}

// The --min-hold of the crontab follows the rule of docs/cron.md, and docs/command.md says for which spread.
func TestMinHoldOfTheCrontabFitsThePeriod(t *testing.T) {
	t.Parallel()
	c := readCrontab(t, textOf("examples/report.cron"))
	require.Equal(t, []string{"*/5", "*", "*", "*", "*"}, c.fields)
	minHold, ttl := minHoldOf(t, c.line)
	spread := spreadOf(minHold, ttl, 5*time.Minute)
	assert.Contains(t, textOf("../../docs/command.md"), "clocks may differ by "+spread.Truncate(time.Second).String()[:2]+" s")
}

// The table of docs/cron.md follows its rule.
func TestTheTableOfTicksFollowsTheRule(t *testing.T) {
	t.Parallel()
	page := textOf("../../docs/cron.md")
	for row, spread := range map[string]time.Duration{
		"30 s | 28 s":          spreadOf(30*time.Second, 8*time.Second, time.Minute),
		"4 min | 54 s":         spreadOf(4*time.Minute, 30*time.Second, 5*time.Minute),
		"20 min | 19 min 59 s": spreadOf(20*time.Minute, 8*time.Second, time.Hour),
		"12 h | 11 h 52 min":   spreadOf(12*time.Hour, 8*time.Second, 24*time.Hour),
	} {
		assert.Contains(t, page, "| "+row+" |")
		_, says, _ := strings.Cut(row, " | ")
		said := must(time.ParseDuration(strings.NewReplacer(" ", "", "min", "m").Replace(says)))
		assert.Less(t, said, spread, row)
		assert.Greater(t, said, spread*96/100, row)
	}
}
