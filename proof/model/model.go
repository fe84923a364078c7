// Package model explores every reachable state of small models of the protocol, and of the same
// models with a rule weakened. The README in this folder says what they cover and what they
// leave out.
//
// Each model has a file, which defines the states, the steps, the forbidden states, the bounds of
// the exploration, and the mutations, each of which weakens a rule. Two models have their steps in a
// second file. The sound model must have no violation in any state. Each mutation must have a
// violation, which the explorer shows as a trace; otherwise either the rule is not needed, or the
// model is too weak.
package model

import "slices"

// Models with a quorum have three nodes, of which two make a quorum. The model joint has two such sets, which share
// two nodes. Models without a quorum have one node.
const (
	numNodes = 3
	quorum   = numNodes/2 + 1
)

// A Size says when a case is explored.
type Size int

// The sizes.
const (
	Small  Size = iota // always explored
	Medium             // explored from the length gate on
	Large              // explored only with REDSYNC_TEST_LENGTH=nightly
)

// A Case is a model within its bounds, sound or mutated.
type Case struct {
	Model   string
	Name    string // the bounds, or the mutation
	Rule    string // the rule that the mutation breaks, in words; "" for a sound model
	Section string // the part of the protocol (see the README), and what the rule is about
	Size    Size
	Explore func(how Search) Result
}

// Sound returns the models without mutations, each in all its bounds.
func Sound() []Case {
	return slices.Concat(lockCases(), fillCases(), fenceCases(), queueCases(), namesCases(), settleCases(), handOverCases(), jointCases(), sharedCases(), readersCases(), permitsCases(), semaphoreCases(), marksCases(), minHoldCases(), registerCases(), serverCases(), sightCases(), forceCases())
}

// Mutations returns the models with a rule weakened.
func Mutations() []Case {
	return slices.Concat(lockMutations(), fillMutations(), fenceMutations(), queueMutations(), namesMutations(), settleMutations(), handOverMutations(), jointMutations(), sharedMutations(), readersMutations(), permitsMutations(), semaphoreMutations(), marksMutations(), minHoldMutations(), registerMutations(), serverMutations(), sightMutations(), forceMutations())
}

// mark returns how a state names client i; 0 means no client.
func mark(i int) uint8 {
	return uint8(i + 1) //nolint:gosec // there are few
}

// A vote is what a client knows about a node in its open round.
type vote uint8

const (
	pending vote = iota
	yes
	no
)

// sortNodes sorts nodes by key, because states that differ only in the order of nodes are
// equivalent.
func sortNodes[N any](nodes *[numNodes]N, key func(*N) uint64) {
	var keys [numNodes]uint64
	for n := range nodes {
		keys[n] = key(&nodes[n])
	}
	for _, n := range [...]int{0, 1, 0} { // sorts three elements
		if keys[n] > keys[n+1] {
			keys[n], keys[n+1] = keys[n+1], keys[n]
			nodes[n], nodes[n+1] = nodes[n+1], nodes[n]
		}
	}
}

// pack combines numbers below 16 into one number.
func pack(numbers ...uint8) (packed uint64) {
	for _, n := range numbers {
		packed = packed<<4 | uint64(n)
	}
	return packed
}
