package main

import (
	"context"
	"fmt"
	"net/rpc"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// The whole program: A is killed, and then paused.
func TestRunSettlesTheHalfDoneTransfer(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	out, err := rigtest.Play(t, program)
	require.NoError(t, err, out)
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
$`, rigtest.WithoutTimes(out))
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
					a.bank.Close()
				}
			}
			a.transfer(rigtest.Bounded(t), first, second, 30) // fails, unless the bank has answered its last request
			require.NoError(t, b.transfer(rigtest.Bounded(t), second, first, 10))
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
	require.ErrorIs(t, a.transfer(rigtest.Bounded(t), first, second, 30), context.Canceled)
	require.NoError(t, b.transfer(rigtest.Bounded(t), second, first, 10))

	late.Balance += 30
	newest := s.bank.guards.For(second).Newest()
	require.ErrorContains(t, a.store(newest-1, late, "deposits 30"), "is stale")
	require.NoError(t, s.bank.audit(2*balance, 1))
	require.ErrorContains(t, s.bank.audit(2*balance, 0), "want 0 stale tokens")
	require.NoError(t, a.store(newest, late, "deposits 30"))
	require.ErrorContains(t, s.bank.audit(2*balance, 1), "-40 are missing") // A's late deposit must also overwrite B's withdrawal of 10
}

func TestTransferFails(t *testing.T) {
	s := newScene(t)
	w := s.worker(t, "A")
	require.ErrorContains(t, w.transfer(rigtest.Bounded(t), first, second, balance+1), "has only 100")
	require.ErrorIs(t, w.transfer(rigtest.Bounded(t), first, first, 10), errSame)
	require.NoError(t, s.bank.audit(2*balance, 0)) // a transfer that fails must lose no money
	s.bank.accounts[first] = Account{Name: first, Balance: 70, Sent: &Payment{ID: "x", To: "account:3", Amount: 30}}
	require.ErrorIs(t, w.transfer(rigtest.Bounded(t), first, second, 1), errElsewhere)
	require.ErrorContains(t, s.bank.audit(170, 0), "on its way")
	require.ErrorContains(t, w.store(0, Account{Name: first}, "no token"), fencing.ErrNoToken.Error())
}

// A scene is a bank and nodes inside this process.
type scene struct {
	bank  *Bank
	nodes *redsynctest.Nodes
	said  []string
	on    func(line string) // called with each line that the bank says
}

func newScene(t *testing.T) *scene {
	s := &scene{nodes: redsynctest.Start(t, 1), on: func(string) {}}
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
	address, stop, err := rig.Serve(s.bank)
	require.NoError(t, err)
	conn, err := rpc.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(); stop() })
	rs := s.nodes.Process().With(redsync.WithTimeoutFactor(0.45)) // the machine may be busy
	return &worker{who, rs, conn, func() error { return nil }}
}
