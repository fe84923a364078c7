//go:build linux

package main

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file runs the units in examples as systemd does.

// A unit has the lines of a unit file, by section and key.
type unit map[string][]string

// readUnit reads a unit file. The examples have no quotes, specifiers or variables, so readUnit knows none.
func readUnit(t *testing.T, text string) unit {
	u, section := unit{}, ""
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch key, value, found := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			require.True(t, found, line)
			require.NotContains(t, u, section+" "+key)
			require.False(t, strings.ContainsAny(value, `"'\$%;`), line)
			u[section+" "+key] = strings.Fields(value)
		}
	}
	return u
}

// value returns what a key is set to.
func (u unit) value(t *testing.T, section, key string) string {
	require.Contains(t, u, section+" "+key)
	return strings.Join(u[section+" "+key], " ")
}

// verdict reports whether systemd would count an exit status as a success, and whether it would restart the service after it.
func (u unit) verdict(status int) (success, restarts bool) {
	is := func(key string) bool { return slices.Contains(u["Service "+key], strconv.Itoa(status)) }
	success = status == 0 || is("SuccessExitStatus")
	return success, slices.Equal(u["Service Restart"], []string{"on-failure"}) && !success && !is("RestartPreventExitStatus")
}

// "systemctl stop" with KillMode=mixed sends TERM to redsync alone, and KILL to what is left after its end. Before that it waits
// for longer than --kill-after, so that redsync can release. A restart follows an outage, and no mistake in the unit.
func TestUnitOfALeader(t *testing.T) {
	t.Parallel()
	u := readUnit(t, textOf("examples/scheduler.service"))
	command := u["Service ExecStart"]
	require.Equal(t, []string{"/usr/local/bin/redsync", "lead"}, command[:2])
	j := must(parseJob(command[1], command[2:]))
	assert.Equal(t, "mixed", u.value(t, "Service", "KillMode"))
	seconds := must(strconv.Atoi(u.value(t, "Service", "TimeoutStopSec")))
	assert.Greater(t, time.Duration(seconds)*time.Second, j.killAfter+2*closeTimeout)
	for status, want := range map[int][2]bool{
		0: {true, false}, exitSignalBase + int(syscall.SIGTERM): {true, false},
		exitUsage: {false, false}, exitNotFound: {false, false}, exitNotRun: {false, false},
		1: {false, true}, exitNoQuorum: {false, true},
	} {
		success, restarts := u.verdict(status)
		assert.Equal(t, want, [2]bool{success, restarts}, status)
	}
}

// The --min-hold of the service follows the rule of docs/cron.md, also if systemd is as late as it may be.
func TestMinHoldOfTheTimerFitsThePeriod(t *testing.T) {
	t.Parallel()
	timer, service := readUnit(t, textOf("examples/report.timer")), readUnit(t, textOf("examples/report.service"))
	require.Equal(t, "*:0/5", timer.value(t, "Timer", "OnCalendar"))
	delay := must(time.ParseDuration(timer.value(t, "Timer", "AccuracySec")))
	minHold, ttl := minHoldOf(t, service.value(t, "Service", "ExecStart"))
	assert.Greater(t, spreadOf(minHold, ttl, 5*time.Minute)-delay, 30*time.Second)
	require.Equal(t, "oneshot", service.value(t, "Service", "Type"))
	success, _ := service.verdict(exitTaken)
	assert.True(t, success) // another machine has the lock
}
