//go:build linux

package main

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// TestLeadEnds: TERM and INT reach COMMAND, and COMMAND is killed after --kill-after if it goes on. Then the next one leads.
func TestLeadEnds(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	for name, s := range map[string]syscall.Signal{"term": syscall.SIGTERM, "int": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, next := newNote(t), newNote(t)
			r := n.under(t, servers, "lead --ttl 60 --kill-after 5 "+name, "child")
			pids := n.pids(t)
			second := next.under(t, servers, "lead "+name)
			r.signal(s)
			n.await(t, s.String())
			n.child().await(t, s.String())
			r.wantStatus(128 + int(s))
			r.wantStderr("redsync: ended by the signal")
			awaitDead(t, pids...)
			next.pid(t)
			next.end(t)
			second.wantStatus(7)
			wantFree(t, servers, name)
		})
	}
}

// TestLeadEndsAtTerm: a COMMAND that ends at TERM does not wait for --kill-after, and the status is that of the signal.
func TestLeadEndsAtTerm(t *testing.T) {
	servers, n := scene(t)
	r := start(t, servers, "lead --ttl 1200 job -- sh -c", `trap "exit 3" TERM; echo ready $$ >"$0"; while :; do sleep 0.01; done`, string(n))
	n.pid(t)
	r.signal(syscall.SIGTERM)
	r.wantStatus(128 + int(syscall.SIGTERM))
	wantFree(t, servers, "job")
}

// TestLeadPasses: other signals are passed on while redsync leads, and end a candidate.
func TestLeadPasses(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "lead job")
	n.pid(t)
	for _, s := range ending {
		if s != syscall.SIGINT && s != syscall.SIGTERM {
			r.signal(s)
			n.await(t, s.String())
		}
		candidate := start(t, servers, "lead job -- true")
		candidate.holder()
		candidate.signal(s)
		candidate.wantStatus(128 + int(s))
	}
	r.ends(servers, n)
}

// TestLeadNextTerm: after a loss COMMAND and its child are killed, and COMMAND begins again in the next term.
func TestLeadNextTerm(t *testing.T) {
	servers, n := scene(t)
	r := start(t, servers, "lead --ttl 600 --kill-after 0.3 job -- sh -c",
		`echo $REDSYNC_FENCE >>"$0"; probe "$0.$REDSYNC_FENCE" child; exit 6`, string(n))
	last := 0
	for round := range 3 {
		await(t, "a term", func() bool { return n.lines()[0] != "" && len(n.lines()) == round+1 })
		token := must(strconv.Atoi(n.lines()[round]))
		require.Greater(t, token, last)
		last = token
		probe := n + note("."+n.lines()[round])
		pids := []int{probe.pid(t), probe.child().pid(t)}
		if round == 2 {
			probe.end(t)
			r.wantStatus(6)
			wantFree(t, servers, "job")
			probe.child().end(t)
			return
		}
		require.NoError(t, forced(t, servers, "job"))
		awaitDead(t, pids...)
	}
}
