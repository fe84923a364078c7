// Package redsynctest runs Redis nodes in the process of a test, so that code with locks can be tested without
// Redis. A test can make the nodes fail.
//
//	func TestWorkerStopsWhenItLosesItsLock(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			nodes := redsynctest.Start(t, 5)
//			done := make(chan error, 1)
//			go func() { done <- worker(t.Context(), nodes.Redsync()) }()
//			time.Sleep(time.Minute) // takes no time
//			nodes.Steal("reports")
//			require.ErrorIs(t, <-done, redsync.ErrLockLost)
//		})
//	}
//
// [Start] returns the nodes, and [Nodes.Redsync] a Redsync on them for the code under test. [Nodes.Process]
// returns another Redsync, which plays another process. The end of the test closes everything, and the test fails
// if a lock's key or a connection is left. Example functions and programs use [New]. The file example_test.go of
// this package has tests to copy: of a worker, of a job that runs once, of an HTTP service, of a retry.
//
// # Time
//
// Use a testing/synctest bubble wherever the code under test allows it: time.Sleep costs nothing there, the nodes
// follow the clock of the bubble, and times are exact. Outside of a bubble the nodes run in real time, and
// [Nodes.Advance] moves only the clocks of the nodes. In real time, on a slow machine, an answer may take longer than
// the node deadline of a lock, 0.4 s by default. [Nodes.Process] with redsync.WithNodeTimeout sets a longer deadline.
//
// # What can go wrong
//
//   - A node is down, frozen, slow or restarted, or loses a reply: the methods of [Node].
//   - Somebody else has the lock: [Nodes.HoldBySomebody].
//   - A held lock is lost: [Nodes.Steal], [Nodes.Expire], or a quorum of nodes that is down.
//   - The process that holds a lock crashes, or cannot reach any node: [Nodes.CutOff].
//
// # What to check
//
// [Nodes.RequireHeld], [Nodes.RequireFree] and [Nodes.RequireNothingLeft] look at the nodes. Their failures say
// what each node has. [Nodes.AwaitHeld] and [Nodes.AwaitFree] wait. A [Recorder] keeps the events of locks.
//
// # Real servers
//
// If the environment variable REDSYNCTEST_SERVERS names a program, such as redis-server, each node is a process
// that runs this program, on a free port of the loopback interface. Then Advance fails, and so does Start in a
// bubble; everything else works. This needs Unix.
//
// This package is experimental (docs/versions.md).
package redsynctest
