package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// alike returns a text of the program without what differs from run to run.
func alike(text string) string {
	for _, r := range []struct{ pattern, by string }{
		{`\b[0-9a-f]{8}\b`, "ID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "TIME"},
		{`\b\d{16}\b`, "PROCESS"},
		{`(\d+\.)*\d+:\d+`, "ADDRESS"},
		{`another [\d.hm]+s`, "another N s"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	return text
}

// inside returns n nodes inside the process. At the end of the test nothing may be left on them.
func inside(t *testing.T, n int) *rig.Nodes {
	nodes := rig.Inside(redsynctest.Start(t, n))
	t.Cleanup(func() {
		for _, c := range nodes.Clients {
			c.Close()
		}
	})
	return nodes
}

// shown plays the scene in virtual time, and returns what the program prints.
func shown(t *testing.T) (text string) {
	synctest.Test(t, func(t *testing.T) {
		nodes := inside(t, 5)
		var out bytes.Buffer
		require.NoError(t, play(t.Context(), nodes, "orders:17", &out))
		text = out.String()
	})
	return text
}

// The page shows what the program prints.
func TestPageShowsTheOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/owners.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "$ go run ./examples/inspect\n")
	require.True(t, found)
	block, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	assert.Equal(t, alike(block), alike(shown(t)))
}

// A holder without a label is named by its library. Too few nodes are an error, and the program says what it has seen.
func TestShowWithoutALabelAndWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := inside(t, 3)
		set := func(i int) {
			require.NoError(t, nodes.Clients[i].Set(t.Context(), "a", "Tq2NfQ6zYQ1dUt4QkPJqkA==", 0).Err())
		}
		set(0)
		set(1)
		var out bytes.Buffer
		require.NoError(t, look(t.Context(), nodes, "a", &out))
		assert.Equal(t, "a: held\n  holder ID: without a label, of redsync v4, for ever\n  differs: node #2 (ADDRESS) has no holder\n", alike(out.String()))
		set(2)

		nodes.Off(0)
		nodes.Off(1)
		time.Sleep(time.Millisecond) // the connections are known to be lost
		out.Reset()
		require.ErrorContains(t, look(t.Context(), nodes, "a", &out), "2 of 3 nodes failed, 2 needed")
		assert.Equal(t, "a: unknown\n"+
			"  silent: node #0 (ADDRESS): dial ADDRESS: connection refused\n"+
			"  silent: node #1 (ADDRESS): dial ADDRESS: connection refused\n"+
			"  differs: node #2 (ADDRESS) has ID\n", alike(out.String()))
		require.NoError(t, nodes.Clients[2].Del(t.Context(), "a").Err())
	})
}

// In an outage the program prints what it has seen, and then fails.
func TestCommandWithoutAQuorum(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, cli.Failed, program.Run(t.Context(), []string{"-nodes", "127.0.0.1:1"}, &out, &errs))
	assert.Equal(t, "orders:17: unknown\n  silent: node #0 (ADDRESS): dial tcp ADDRESS: connect: connection refused\n", alike(out.String()))
	assert.Contains(t, errs.String(), `inspect "orders:17": the only node failed: `)
}
