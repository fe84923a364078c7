// Package wiretest is the conformance suite of wire.Pool, and of wire.Subscriber if a Pool
// implements it: one check for each promise. A test of an implementation runs it:
//
//	func TestPoolConforms(t *testing.T) {
//		wiretest.Run(t, func(t *testing.T, check func(*testing.T, wiretest.Env)) {
//			node := startNode(t)
//			check(t, wiretest.Env{Pool: node.Pool, Do: node.Do})
//		})
//	}
//
// Some checks count goroutines, so nothing else may run in the test's process meanwhile. The example is a driver that
// passes the checks.
package wiretest

import (
	"slices"
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// Env is one node, empty and running, and the faults that a check can cause. A nil function is a
// fault that this node does not support; checks that need it are skipped. Pool and Do are
// required.
type Env struct {
	// Pool returns a new Pool of the node. The Pool must refuse a request that is not Reserved while
	// limit replies are outstanding. Pools of one Env may share a connection.
	Pool func(limit int) wire.Pool
	// Do runs a command on the node without using any pool.
	Do func(args ...any) (any, error)

	// Freeze stops execution until Thaw, while connections stay open. If Thaw follows within two
	// seconds, requests sent meanwhile must still be answered.
	Freeze, Thaw func()
	// Kill ends the node: connections end, and new ones are refused. Restart starts it again
	// without data, at the same address.
	Kill, Restart func()
	// LoseReply applies to the next request named command: the node executes it, but its
	// connection is cut when the reply is due, and the reply is lost.
	LoseReply func(command string)
	// Answer makes the node answer the next request named command with the error text instead of
	// executing it.
	Answer func(command, text string)
	// Connections counts the open connections of the node's clients.
	Connections func() int

	// Slack is how long a call that must not wait may take. It is 0 in a bubble of
	// testing/synctest, where times are exact. Otherwise it must be less than the time after
	// which the pool gives up a silent connection.
	Slack time.Duration
	// Machine watches whether the machine stands still. It is nil in a bubble.
	Machine *stall.Watch
}

// Run runs every check as a subtest. It calls surround once for each. surround must call check
// with a fresh node, inside a testing/synctest bubble if it wants, and clean up afterwards.
func Run(t *testing.T, surround func(t *testing.T, check func(*testing.T, Env))) {
	t.Helper()
	for _, c := range slices.Concat(counting, checks) {
		t.Run(c.promise, func(t *testing.T) { surround(t, c.check) })
	}
}

// RunParallel is Run for nodes on which checks wait in real time. First it runs the
// checks that count goroutines, one after the other. Then it calls t.Parallel, and
// runs the others in parallel.
func RunParallel(t *testing.T, surround func(t *testing.T, check func(*testing.T, Env))) {
	t.Helper()
	for _, c := range counting {
		t.Run(c.promise, func(t *testing.T) { surround(t, c.check) })
	}
	t.Parallel()
	for _, c := range checks {
		t.Run(c.promise, func(t *testing.T) {
			t.Parallel()
			surround(t, c.check)
		})
	}
}

type promise struct {
	promise string
	check   func(*testing.T, Env)
}

// counting are the checks that count the goroutines of the process.
var counting = []promise{
	{"a frozen node costs no goroutines", frozenNodeCostsNoGoroutines},
	{"Close leaves no goroutine", closeLeavesNoGoroutine},
	{"a subscription leaves nothing", subscriptionLeavesNothing}, // skipped where the pool is not a Subscriber
}

var checks = []promise{
	{"every request has one reply, in order", everyRequestHasOneReply},
	{"an encoding is read until Send returns", encodingIsReadUntilSendReturns},
	{"goroutines share a pool", goroutinesShareAPool},
	{"a receiver may send", receiverMaySend},
	{"a missing key is a nil value", missingKeyIsNil},
	{"an error of the node is an answer", errorIsAnAnswer},
	{"an error of the node is not retried", errorIsNotRetried},
	{"an unknown script is an answer", unknownScriptIsAnAnswer},
	{"requests are executed in order", requestsAreExecutedInOrder},
	{"replies follow execution", repliesFollowExecution},
	{"a frozen node holds nobody up", frozenNodeHoldsNobodyUp},
	{"reserved requests pass the limit", reservedRequestsPassTheLimit},
	{"room returns with each reply", roomReturnsWithEachReply},
	{"a dead node executes nothing", deadNodeExecutesNothing},
	{"a lost reply is unknown and executed once", lostReplyIsUnknown},
	{"no request is executed twice", noRequestIsExecutedTwice},
	{"a restart raises Conn", restartRaisesConn},
	{"a restart while idle raises Conn", restartWhileIdleRaisesConn},
	{"Server stays the same", serverStays},
	{"a restart changes Server", restartChangesServer},
	{"Close answers what was accepted", closeAnswersWhatWasAccepted},
	{"Close does not wait for a frozen node", closeDoesNotWait},
	{"Close races with Send", closeRacesWithSend},
	{"CloseIdle ends connections until the next Send", closeIdleEndsConnections},
	{"String names the node", stringNamesTheNode},

	// Skipped where the pool is not a Subscriber.
	{"Subscribe needs its arguments", subscribeNeedsItsArguments},
	{"a subscription is confirmed before messages", confirmedBeforeMessages},
	{"messages keep their order", messagesKeepTheirOrder},
	{"payloads are binary", payloadsAreBinary},
	{"a reconnect is announced", reconnectIsAnnounced},
	{"a subscription waits for a dead node", subscriptionWaitsForDeadNode},
	{"a frozen node is unsubscribed", frozenNodeIsUnsubscribed},
	{"a refusal is final", refusalIsFinal},
	{"nothing is called after the Close of a subscription", nothingAfterClose},
	{"a pool has many subscriptions", manySubscriptions},
}
