package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// playInside plays a scene on nodes inside the process, in virtual time.
func playInside(t *testing.T, args ...string) (out string, err error) {
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
	assert.NotContains(t, out, "TWO HOLDERS", out)
	assert.Contains(t, out, "two holders: 0, tokens that did not rise: 0\n", out)
	for _, k := range kinds {
		assert.Contains(t, out, " locks by "+k.String(), out)
	}
	assert.Contains(t, out, `the last old one, ends without unlocking "invoices"`)
	assert.Contains(t, out, `the last joint one, ends without unlocking "invoices"`)
}

func TestReplaceInTheRightWay(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
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
	testlength.NotWhileAPersonWaits(t)
	out, err := playInside(t, "-wrong")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "joint", out)
	assert.Regexp(t, `old and new together: .*two holders: [1-9]`, out)
}

func TestRunRealServers(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	out, err := rigtest.Play(t, program, "-processes", "1")
	require.NoError(t, err, out)
	assertMoved(t, out)
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
	old := func(token uint64, left time.Duration) *hold {
		return &hold{kind: oldKind, token: token, remaining: func() time.Duration { return left }}
	}
	leave := j.enter("a", old(2, time.Second))
	j.enter("b", old(1, time.Second))()
	j.enter("b", old(2, 0))
	j.enter("b", old(3, time.Second))
	while, now := j.since(tally{})
	assert.Equal(t, []int{4, 0, 0}, []int{while.locks[oldKind], while.clashes, while.fallen})
	j.enter("a", old(1, time.Second))
	leave()
	while, _ = j.since(now)
	assert.Equal(t, []int{1, 1, 1}, []int{while.locks[oldKind], while.clashes, while.fallen})
	assert.Equal(t, []string{"a"}, shown)
}
