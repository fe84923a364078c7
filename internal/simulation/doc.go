// Package simulation is tests alone. They run the whole library in virtual time: five nodes and
// a few processes, with everything that may go wrong drawn from a seed. Package history checks
// what the clients believed.
//
//	go test -run 'TestSimulation$' ./internal/simulation      # as many seeds as package testlength says
//	REDSYNC_SIM_SEEDS=3000                                    # so many seeds
//	REDSYNC_SIM_FROM=9000                                     # from this one on
//	REDSYNC_SIM_SEED=17                                       # one; with -v it prints its history
//	REDSYNC_SIM_WITHOUT=greetings,values,nonsense             # without these of its classes: see allClasses
//
// A failure prints how to repeat it. A panic ends the process and prints no seed: -v tells which
// seed ran.
package simulation
