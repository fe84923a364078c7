package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// playInside plays a scene on nodes inside the process, in virtual time.
func playInside(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg, e := parseFlags(args)
		require.NoError(t, e)
		if !cfg.wrong {
			cfg.work = 500 * time.Millisecond
		}
		n := nodesInside(cfg.numbers())
		var text bytes.Buffer
		err = play(t.Context(), cfg, n, &text)
		out = text.String()
		n.Close()
	})
	return out, err
}

// assertMoved checks the output of a run that replaced its nodes in the right way.
func assertMoved(t *testing.T, out string) {
	t.Helper()
	assert.NotContains(t, out, "TWO HOLDERS", out)
	assert.Contains(t, out, "two holders: 0, tokens that did not rise: 0\n", out)
	for _, k := range kinds {
		assert.Contains(t, out, " locks by "+k.String(), out)
	}
	assert.Contains(t, out, `the last old one, ends without unlocking "invoices"`)
	assert.Contains(t, out, `the last joint one, ends without unlocking "invoices"`)
}

func TestReplaceInTheRightWay(t *testing.T) {
	for name, c := range map[string]struct{ before, after, removed string }{
		"one of five": {"1,2,3,4,5", "1,2,3,4,6", "5"},
		"all":         {"1,2,3", "4,5,6", "1,2,3"},
		"from 3 to 5": {"1,2,3", "1,2,3,4,5", ""},
		"from 5 to 3": {"1,2,3,4,5", "1,2,3", "4,5"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := playInside(t, "-processes", "2", "-before", c.before, "-after", c.after)
			require.NoError(t, err, out)
			assertMoved(t, out)
			if c.removed == "" {
				assert.NotContains(t, out, "switched off")
				return
			}
			assert.Contains(t, out, fmt.Sprintf("removed nodes: %s. What is left there: 0 locks, 0 queues, ", c.removed))
			assert.Contains(t, out, "switched off\n")
		})
	}
}

func TestReplaceInTheWrongWay(t *testing.T) {
	out, err := playInside(t, "-wrong")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "joint", out)
	assert.Regexp(t, `old and new together: .*two holders: [1-9]`, out)
}

func TestRunRealServers(t *testing.T) {
	t.Parallel()
	out, err := rigtest.Play(t, program, "-processes", "1")
	require.NoError(t, err, out)
	assertMoved(t, out)
}

func TestRunRealServersInTheWrongWay(t *testing.T) {
	t.Parallel()
	out, err := rigtest.Play(t, program, "-wrong")
	require.NoError(t, err, out)
	assert.Contains(t, out, "redis-servers")
	assert.Regexp(t, `old and new together: .*two holders: [1-9]`, out)
}

func TestRunInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*time.Millisecond, func() { cancel(errors.New("interrupted")) })
		cfg, err := parseFlags(nil)
		require.NoError(t, err)
		cfg.work = 500 * time.Millisecond
		n := nodesInside(cfg.numbers())
		var out bytes.Buffer
		start := time.Now()
		require.EqualError(t, play(ctx, cfg, n, &out), "interrupted")
		assert.Less(t, time.Since(start), 2600*time.Millisecond)
		locks, queues, _, err := n.left(n.numbers)
		require.NoError(t, err)
		assert.Zero(t, locks+queues)
		n.Close()
	})
}

func TestCommandExitStatus(t *testing.T) { rigtest.Statuses(t, program) }

func TestRunBadFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string // parts of the message
	}{
		{[]string{"-before", ""}, []string{"-before", `""`, "1 to 20"}},
		{[]string{"-before", "1,two"}, []string{"-before", `"two"`, "1 to 20"}},
		{[]string{"-after", "21"}, []string{"-after", `"21"`, "1 to 20"}},
		{[]string{"-after", "1,2,1"}, []string{"-after", "node 1 is there twice"}},
		{[]string{"-processes", "0"}, []string{"-processes 0", "1 to 20"}},
		{[]string{"-expiry", "10ms"}, []string{"-expiry 10ms", "2s to 1m0s"}},
		{[]string{"-expiry", "soon"}, []string{"-expiry", "2s to 1m0s"}},
		{[]string{"-wrong", "-after", "1,2,3,4,5"}, []string{"-wrong", "every quorum"}},
		{[]string{"-wrong", "-after", "1,2,3,4"}, []string{"-wrong", "every quorum"}},
		{[]string{"-speed", "9"}, []string{"-speed", "-h lists the flags"}},
		{[]string{"now"}, []string{`"now"`, "-h lists the flags"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, 2, program.Run(t.Context(), test.args, &out, &errs))
			for _, part := range test.want {
				assert.Contains(t, errs.String(), part)
			}
			assert.Equal(t, 1, strings.Count(errs.String(), "\n"), "the command must report the error in one line: %s", errs.String())
			assert.Empty(t, out.String())
		})
	}
}

// TestAlwaysMeetAgreesWithEveryPairOfQuorums compares the rule with all subsets of up to seven nodes.
func TestAlwaysMeetAgreesWithEveryPairOfQuorums(t *testing.T) {
	const total = 7
	of := func(set uint) (nodes list) {
		for n := range total {
			if set>>n&1 != 0 {
				nodes = append(nodes, n+1)
			}
		}
		return nodes
	}
	for a := uint(1); a < 1<<total; a++ {
		for b := uint(1); b < 1<<total; b++ {
			// Quorums do not always meet if b has a quorum without the nodes of some quorum of a.
			meet := true
			for qa := a; qa != 0 && meet; qa = (qa - 1) & a {
				meet = len(of(qa)) < quorum(of(a)) || len(of(b&^qa)) < quorum(of(b))
			}
			if alwaysMeet(of(a), of(b)) != meet {
				require.Equal(t, meet, alwaysMeet(of(a), of(b)), "whether every quorum of %v meets every quorum of %v", of(a), of(b))
			}
		}
	}
}

// TestOneNodeMoreOrLessAlwaysMeets shows why a fleet without joint sets may add or remove one node at a time.
func TestOneNodeMoreOrLessAlwaysMeets(t *testing.T) {
	var nodes list
	for n := range 63 {
		nodes = append(nodes, n+1)
		more := append(nodes[:len(nodes):len(nodes)], n+2)
		assert.True(t, alwaysMeet(nodes, more) && alwaysMeet(more, nodes), "every quorum of %d nodes must meet every quorum of one node more", len(nodes))
	}
	assert.False(t, alwaysMeet(list{1, 2, 3, 4, 5}, list{1, 2, 3, 4, 6}))
}

// A judge counts a second holder only if both holds still have time left.
func TestJudgeCountsTwoHolders(t *testing.T) {
	var mu sync.Mutex
	var shown []string
	j := newJudge()
	j.clash = func(name string, _, _ *hold) {
		mu.Lock()
		defer mu.Unlock()
		shown = append(shown, name)
	}
	left := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	leave := j.enter("a", &hold{kind: oldKind, token: 2, remaining: left(time.Second)})
	j.enter("b", &hold{kind: oldKind, token: 1, remaining: left(time.Second)})()
	j.enter("b", &hold{kind: oldKind, token: 2, remaining: left(0)})
	j.enter("b", &hold{kind: oldKind, token: 3, remaining: left(time.Second)})
	while, now := j.since(tally{})
	assert.Equal(t, []int{4, 0, 0}, []int{while.locks[oldKind], while.clashes, while.fallen})
	j.enter("a", &hold{kind: oldKind, token: 1, remaining: left(time.Second)})
	leave()
	while, _ = j.since(now)
	assert.Equal(t, []int{1, 1, 1}, []int{while.locks[oldKind], while.clashes, while.fallen})
	assert.Equal(t, []string{"a"}, shown)
}
