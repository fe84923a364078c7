package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// TestMain runs a worker if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv(envJob) != "" {
		main()
		return
	}
	logging.Disable()
	os.Exit(m.Run())
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// The whole program: A is killed, and then paused.
func TestRunSettlesTheHalfDoneTransfer(t *testing.T) {
	realredis.Start(t, 0) // skips the test where there is no redis-server
	var out bytes.Buffer
	require.NoError(t, command(bounded(t), nil, &out))
	assert.Regexp(t, `^Worker A is killed in the middle of a transfer:
  A has both accounts, token \d+
  A withdraws 30: account:1 has 70
  A is killed. B wants both accounts
  B has both accounts, token \d+
  B takes back 30, which never arrived: account:1 has 100
  B withdraws 10: account:2 has 90
  B deposits 10: account:1 has 110
  B is done: account:2 has 90
  The accounts have 110 and 90: 200, as before
Worker A is paused in the middle of a transfer:
  A has both accounts, token \d+
  A withdraws 30: account:1 has 70
  A is paused. B wants both accounts
  B has both accounts, token \d+
  B takes back 30, which never arrived: account:1 has 100
  B withdraws 10: account:2 has 90
  B deposits 10: account:1 has 110
  B is done: account:2 has 90
  A goes on
  A deposits 30: refused: fencing: token \d+ is stale: the resource has seen \d+
  The accounts have 110 and 90: 200, as before
$`, out.String())
}

// Wherever A dies in a transfer, B must settle the transfer exactly once.
func TestTransferIsSettledWhereverItsWorkerDies(t *testing.T) {
	for name, c := range map[string]struct {
		after  string // the last request of A that the bank executed
		settle string
		want   [2]int // the balances at the end
	}{
		"before the first half":  {"A has both accounts", "", [2]int{110, 90}},
		"between the halves":     {"A withdraws 30", "B takes back 30, which never arrived", [2]int{110, 90}},
		"before it has finished": {"A deposits 30", "B sees that a payment of 30 has arrived", [2]int{80, 120}},
		"after it has finished":  {"A is done", "", [2]int{80, 120}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			a, b := s.worker(t, "A"), s.worker(t, "B")
			s.on = func(line string) {
				if strings.HasPrefix(line, c.after) {
					_ = a.bank.Close()
				}
			}
			_ = a.transfer(bounded(t), first, second, 30) // fails, unless the bank has answered its last request
			require.NoError(t, b.transfer(bounded(t), second, first, 10))
			require.NoError(t, s.bank.audit(2*balance, 0))
			assert.Equal(t, c.want, [2]int{s.bank.accounts[first].Balance, s.bank.accounts[second].Balance})
			assert.Equal(t, c.settle != "", strings.Contains(s.lines(), c.settle) && c.settle != "")
			assert.Equal(t, c.settle != "", strings.Contains(s.lines(), "B takes") || strings.Contains(s.lines(), "B sees"))
		})
	}
}

// The control: if the account did not refuse A's deposit, there would be more money than before.
func TestTransferWithoutTheRefusalMakesMoney(t *testing.T) {
	s := newScene(t)
	a, b := s.worker(t, "A"), s.worker(t, "B")
	var late Account
	a.halfway = func() error {
		late = s.bank.accounts[second] // what A has read
		return context.Canceled
	}
	require.ErrorIs(t, a.transfer(bounded(t), first, second, 30), context.Canceled)
	require.NoError(t, b.transfer(bounded(t), second, first, 10))

	late.Balance += 30
	newest := s.bank.guards.For(second).Newest()
	require.ErrorContains(t, a.bank.store(newest-1, late, "A deposits 30"), "is stale")
	require.NoError(t, s.bank.audit(2*balance, 1))
	require.ErrorContains(t, s.bank.audit(2*balance, 0), "want 0 stale tokens")
	require.NoError(t, a.bank.store(newest, late, "A deposits 30"))
	require.ErrorContains(t, s.bank.audit(2*balance, 1), "-40 are missing", "A's late deposit must also overwrite B's withdrawal of 10")
}

func TestTransferFails(t *testing.T) {
	s := newScene(t)
	w := s.worker(t, "A")
	require.ErrorContains(t, w.transfer(bounded(t), first, second, balance+1), "has only 100")
	require.ErrorIs(t, w.transfer(bounded(t), first, first, 10), errSame)
	require.NoError(t, s.bank.audit(2*balance, 0), "a transfer that fails must lose no money")
	s.bank.accounts[first] = Account{Name: first, Balance: 70, Sent: &Payment{ID: "x", To: "account:3", Amount: 30}}
	require.ErrorIs(t, w.transfer(bounded(t), first, second, 1), errElsewhere)
	require.ErrorContains(t, s.bank.audit(170, 0), "on its way")
	require.ErrorContains(t, w.bank.store(0, Account{Name: first}, "no token"), fencing.ErrNoToken.Error())
}

func TestCommandExitStatus(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no redis-server
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, cli.Failed, "transfer: " + realredis.ErrMissing.Error() + "\n"},
		{[]string{"-nodes", "127.0.0.1:1"}, cli.Failed, "transfer: worker A: redsync: Open: 0 of 1 nodes answered, 1 needed: " +
			"node #0 (127.0.0.1:1): dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{[]string{"-h"}, cli.OK, ""},
		{[]string{"-fast"}, cli.Misuse, "transfer: flag provided but not defined: -fast (-h lists the flags)\n"},
	} {
		var errs bytes.Buffer
		assert.Equal(t, c.status, cli.Status("transfer", command(bounded(t), c.args, io.Discard), io.Discard, &errs))
		assert.Equal(t, c.want, errs.String())
	}
}

// A scene is a bank and nodes inside this process.
type scene struct {
	bank  *Bank
	nodes embedded.Nodes
	said  []string
	on    func(line string) // called with each line that the bank says
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{nodes: embedded.Start(3), on: func(string) {}}
	t.Cleanup(s.nodes.Close)
	s.bank = newBank(func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		s.said = append(s.said, line)
		s.on(line)
	})
	return s
}

// lines returns what the bank has said.
func (s *scene) lines() string { return strings.Join(s.said, "\n") }

// worker returns a worker with connections of its own.
func (s *scene) worker(t *testing.T, who string) *worker {
	t.Helper()
	var pools []pool.Pool
	for _, n := range s.nodes {
		c := n.Client()
		t.Cleanup(func() { _ = c.Close() })
		pools = append(pools, pool.New(c))
	}
	rs := redsync.New(pools...)
	server, conn := net.Pipe()
	go s.bank.server().ServeConn(server)
	t.Cleanup(func() { _ = rs.Close(context.Background()); _ = conn.Close() })
	return &worker{who: who, rs: rs, bank: &client{rpc.NewClient(conn)}}
}
