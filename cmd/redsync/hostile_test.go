//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// mostMemory is how many KiB a command may have in memory, whatever a node sends.
const mostMemory = 200 << 10

// lies returns what a hostile node sends in place of an answer. It is no variable: the commands that the test measures run
// this program, too.
func lies() map[string]string {
	return map[string]string{
		"a length that no memory has":    "$9223372036854775000\r\n",
		"a count that no memory has":     "*9223372036854775000\r\n",
		"a count that the memory has":    "*1000000000\r\n",
		"arrays in arrays":               strings.Repeat("*1\r\n", 2<<20),
		"the longest string":             bulk(strings.Repeat("run_id:a\r\n", 1677700)),
		"a string that does not end":     "$16777000\r\n" + strings.Repeat("a", 17<<20),
		"a line without end":             strings.Repeat("a", 1<<20),
		"many numbers":                   "*340000\r\n" + strings.Repeat(":1\r\n", 340000),
		"an escape and much text":        "-ERR \x1b[31mRED\x1b]0;title\a\x00\x7f\t\u009b\x9b" + strings.Repeat("a", 15000) + "\r\n",
		"an error of two lines":          "!20\r\nERR \x1b[2J\r\nredsync: \r\n",
		"answers to everything":          strings.Repeat(":1\r\n", 1<<20),
		"the beginning of an answer":     "+O",
		"a string where a number belong": "$5\r\n\x1b[2Ja\r\n",
		"the end of the connection":      hangUp,
	}
}

// Whatever one node of three sends, and in answer to whatever it is asked: no command dies of it, takes much memory, waits
// for long, or shows what a terminal obeys. check says all of the other nodes.
func TestHostileNode(t *testing.T) {
	if testing.Short() {
		t.Skip("its processes keep the machine busy: not with -short")
	}
	all, most := lies(), mostMemory
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		most *= 4 // the race detector has its own
	}
	well := startFake(t, wellAnswer) + "," + startFake(t, wellAnswer)
	for _, c := range []struct {
		args    []string // of the command, without --nodes
		moments []string // what the lie answers: the beginnings of commands
		ends    []int    // exit statuses
	}{
		{[]string{"check", "--lock", "app:17"}, []string{"info", "time", "set", "subscribe"}, []int{0, 1}},
		{[]string{"status", "--json", "app:17"}, []string{"eval"}, []int{0, 1, exitNoQuorum}},
		{[]string{"status", "app:17"}, []string{"hello", "eval"}, []int{0, 1, exitNoQuorum}},
		{[]string{"run", "--wait", "1", "app:17", "--", "true"}, []string{"set", "eval"}, []int{0, exitNoQuorum, exitTaken}},
	} {
		for _, moment := range c.moments {
			for name, lie := range all {
				t.Run(fmt.Sprint(strings.Join(c.args[:2], " "), " ", moment, " ", name), func(t *testing.T) {
					t.Parallel()
					liar := startFake(t, with(moment, lie))
					args := append([]string{c.args[0], "--nodes", liar + "," + well}, c.args[1:]...)
					status, out, memory := measured(t, args)
					assert.Contains(t, c.ends, status, out)
					assert.Less(t, memory, most) // KiB
					assert.Equal(t, foreign.Lines(out), out)
					if c.args[0] == "check" {
						assert.Contains(t, out, "node #2 (")
						assert.Contains(t, out, " of 3 nodes answer, ")
					}
					for line := range strings.Lines(out) {
						assert.Less(t, len(line), 3*foreign.MaxError) // a line may have an error of each node
					}
				})
			}
		}
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// measured runs the command. It returns its exit status, its output, and how many KiB it had in memory at most.
func measured(t *testing.T, args []string) (status int, out string, memory int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Args = append([]string{"redsync"}, args...)
	cmd.Stdout, cmd.Stderr = &text, &text
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if found := highWater.FindSubmatch(text); found != nil {
				n, _ := strconv.Atoi(string(found[1]))
				memory = max(memory, n)
			}
			select {
			case <-ended:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	cmd.Wait() // the status says it
	close(ended)
	watching.Wait()
	require.NoError(t, ctx.Err(), text.String())
	require.Positive(t, memory)
	return cmd.ProcessState.ExitCode(), text.String(), memory
}
