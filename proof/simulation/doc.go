// Package simulation contains only tests. They run the whole library in virtual time, with a few
// processes and five nodes. In the tests of a change the processes move from one set of nodes to the
// next. All faults are drawn from a seed. Package history checks what the clients believed.
//
// In some seeds the clients also lock several names at once. Package history checks the promises for each name. It also
// checks that each node has set all keys of such a lock, or none. In some seeds the clients also lock single names
// shared, and make exclusive locks shared (Downgrade). Then package history lets readers overlap, but only with
// readers. In some seeds the clients also take permits of the same names. Package history counts how many are held at
// once.
//
// In some seeds clients campaign for names (Lead), call Do within Do, or run jobs once per tick (WithMinHold).
// Package history checks that no leader's context outlives its term, and that the numbers of terms rise. It also checks
// that no call that has joined a hold goes on after somebody else has got the lock, and that no job begins too soon
// after another one.
//
// Four scenes play what is rare otherwise. In TestSimulationWhileProcessesClose processes close again and again while
// their clients run jobs: Close keeps the minimal holds. In TestSimulationOfShorterExtensions holders let other
// processes extend their holds for a shorter time: that shortens none. In TestSimulationWhileNodesRunFast the drift of clocks is what it may
// be at most, and holders stay to the end. In TestSimulationWithoutPolls nothing fails and nobody polls, so a lost
// wake-up shows: a free lock must not rest for 225 ms.
//
// At the end of each seed all faults stop. Then every waiter must be served in time: also a writer while readers
// overlap, and a client that wants several permits while others come and go. At each tick exactly one process must run
// the job. All permits must be free, and no key of a lock or a queue may be left.
//
// Package history also judges waits: a free lock must not rest for a second while somebody waits for it with the default
// retry delays, and a quorum of nodes serves its process. In TestSimulationOfABadMinority the nodes fail in no other way
// than that a minority is silent, slow, refuses commands, flaps, cannot be dialed or loses its connections, while
// processes in two zones lock in every mode; in some rounds a client has crashed and has left keys on other nodes. Two
// successive seeds play every mode with every fault. In TestSimulationWhileDialsFail a host is off for so long that all
// faults end before it comes back.
//
// In TestSimulationOfLookers clients look who holds the names (Inspect), in every mode, with every fault and while the nodes
// change. Package history judges what they see: sights.go there says what a look promises.
//
// In TestSimulationOfForcers clients release the locks of others by force (ForceUnlock). Package history judges what may break
// then: forces.go there says what a release by force promises.
//
// In TestSimulationOfHaste processes wait in every mode, near two to seven nodes or far from them, while nodes lack keys and
// restart. Package history judges how often they try: haste.go there has the bounds.
//
// In TestSimulationWhileClocksStep clocks step by a minute while a lock is held and waited for, in every mode: the wall
// clock of the clients or the clocks of a minority of nodes, forward or back, or the clocks of all nodes, back. Judges
// of its own check that a holder is told if the step ends its hold, and that nobody waits for longer than the TTL and
// the step.
//
//	go test -run 'TestSimulation$' ./proof/simulation      # as many seeds as package testlength says
//	REDSYNC_SIM_SEEDS=3000                                    # this many seeds
//	REDSYNC_SIM_FROM=9000                                     # starting with this one
//	REDSYNC_SIM_SEED=17                                       # only this one; -v prints its history
//	REDSYNC_SIM_WITHOUT=greetings,values,nonsense             # without these classes: see allClasses
//	REDSYNC_SIM_WITH=several                                  # each seed with these classes
//
//	go test -run 'TestSimulationOfSeveralNames$' ./proof/simulation   # each seed with locks on several names
//	REDSYNC_SIM_SEVERAL=1000                                  # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfReaders$' ./proof/simulation        # each seed with readers
//	REDSYNC_SIM_READERS=1000                                  # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfPermits$' ./proof/simulation        # each seed with permits
//	REDSYNC_SIM_PERMITS=1000                                  # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfLeaders$' ./proof/simulation        # each seed with candidates
//	REDSYNC_SIM_LEADERS=1000                                  # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfNesting$' ./proof/simulation        # each seed with calls of Do within Do
//	REDSYNC_SIM_NESTING=1000                                  # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfTicks$' ./proof/simulation          # each seed with minimal holds
//	REDSYNC_SIM_TICKS=1000                                    # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationBesideRedsyncV4$' ./proof/simulation  # clients of redsync v4 lock the same names
//	REDSYNC_SIM_V4=200                                        # this many seeds in each mode; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationWhileProcessesClose$' ./proof/simulation   # minimal holds; processes close all the time
//	REDSYNC_SIM_CLOSING=201                                   # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfShorterExtensions$' ./proof/simulation   # others extend a reader's hold for less
//	REDSYNC_SIM_SHORTER=201                                   # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationWhileNodesRunFast$' ./proof/simulation     # holders stay to the end of their validity
//	REDSYNC_SIM_FAST=201                                      # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationWithoutPolls$' ./proof/simulation     # only wake-ups help those who wait
//	REDSYNC_SIM_UNPOLLED=201                                  # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfOwners$' ./proof/simulation         # WithOwner, with faults and without
//	REDSYNC_SIM_OWNERS=201                                    # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfLookers$' ./proof/simulation        # clients look who holds (Inspect), with WithOwner
//	REDSYNC_SIM_LOOKERS=201                                   # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfNativeCommands$' ./proof/simulation  # nodes have DELEX and the like, and lose them
//	REDSYNC_SIM_NATIVE=201                                    # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfForcers$' ./proof/simulation        # clients release locks by force (ForceUnlock)
//	REDSYNC_SIM_FORCERS=201                                   # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfConstantValues$' ./proof/simulation # all locks of a process have one value
//	REDSYNC_SIM_CONSTANTS=201                                 # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfAChange$' ./proof/simulation   # the set of nodes changes
//	REDSYNC_SIM_CHANGES=1500                                 # this many seeds; REDSYNC_SIM_FROM and REDSYNC_SIM_WITH as above
//
//	go test -run 'TestSimulationOfABadMinority$' ./proof/simulation   # one minority fault after another
//	REDSYNC_SIM_MINORITY=300                                 # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationOfHaste$' ./proof/simulation      # waiters make no haste
//	REDSYNC_SIM_HASTE=300                                    # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationWhileClocksStep$' ./proof/simulation  # clocks step by a minute
//	REDSYNC_SIM_CLOCKS=40                                    # this many seeds; REDSYNC_SIM_FROM as above
//
//	go test -run 'TestSimulationWhileDialsFail$' ./proof/simulation   # dials to one host fail
//	REDSYNC_SIM_DIALS=200                                    # this many seeds; REDSYNC_SIM_FROM as above
//
// RULES.md and the two pages beside it list the rules of the protocol that were switched off in the code, one after the
// other, and which scene has seen it, with which seed. The normal length plays these seeds.
//
// A failure prints the command that repeats it. A panic ends the process without printing the
// seed; with -v the output shows which seed was running.
//
// Nearly all seeds repeat themselves to the nanosecond, in every process and on a busy machine. A few have several
// histories, most of them in the tests of a change: if such a seed passes, try it again. The library sets timers for
// the same nanosecond, such as the deadline of a round and the check for a silent connection. In a bubble the runtime
// draws which of them fires first.
//
// testdata/histories.txt records a hash of seeds 1 to 20 of each class: of the history, and of every command that each
// node has got, with its time. A refactoring changes none. TestHistories compares the first few. It plays a seed that has
// another history again, until one other history has come 15 times. The hashes are valid for one version of Go and one processor architecture, which the file names; with
// others the test is skipped. They also change with another version of miniredis or go-redis, with each text of an
// error, and with what the simulation itself plays.
//
// The histories of a change also depend on the tests that the process has run before. So they are compared only with
// REDSYNC_SIM_HISTORIES, which is meant for a run of this test alone.
//
//	REDSYNC_SIM_HISTORIES=20 go test -count=1 -run 'TestHistories$' ./proof/simulation          # all 20 of each class
//	REDSYNC_SIM_REWRITE=1 go test -count=1 -timeout 1h -run 'TestHistories$' ./proof/simulation # rewrite the file
package simulation
