// Package model explores small models of the protocol in every state that they can
// reach, and the same models with one rule weakened. The README in this folder says what
// they cover and what they leave out.
//
// A model is one file: what a state is, what may happen, what must never be, in which
// bounds it is explored, and its mutations: each rule, weakened. As it is a model must
// have no violation in any state. Each mutation must have one, with a trace: otherwise
// the model would not notice if the rule were missing.
package model

import "slices"

// Every model has three nodes, of which two make a quorum.
const (
	numNodes = 3
	quorum   = numNodes/2 + 1
)

// A Size says when a case is explored.
type Size int

// The sizes.
const (
	Small  Size = iota // always
	Medium             // not with -short
	Large              // only with REDSYNC_TEST_LENGTH=nightly
)

// A Case is a model in its bounds, as it is or mutated.
type Case struct {
	Model   string
	Name    string // the bounds, or the mutation
	Rule    string // what the mutation breaks, in words; "" of a model as it is
	Section string // of the design that the rule is in
	Size    Size
	Explore func(limit int) Result
}

// Sound returns the models as they are, each in all its bounds.
func Sound() []Case {
	return slices.Concat(lockCases(), fenceCases(), queueCases(), settleCases(), handOverCases())
}

// Mutations returns the models with a rule weakened.
func Mutations() []Case {
	return slices.Concat(lockMutations(), fenceMutations(), queueMutations(), settleMutations(), handOverMutations())
}

// mark is how a state names client i, with 0 for none.
func mark(i int) uint8 {
	return uint8(i + 1) //nolint:gosec // there are few
}

// A vote is what a client knows of a node in the round that it has open.
type vote uint8

const (
	pending vote = iota
	yes
	no
)

// sortNodes orders nodes by key: which is which does not matter.
func sortNodes[N any](nodes *[numNodes]N, key func(*N) uint64) {
	var keys [numNodes]uint64
	for n := range nodes {
		keys[n] = key(&nodes[n])
	}
	for _, n := range [...]int{0, 1, 0} { // enough for three
		if keys[n] > keys[n+1] {
			keys[n], keys[n+1] = keys[n+1], keys[n]
			nodes[n], nodes[n+1] = nodes[n+1], nodes[n]
		}
	}
}

// pack makes one number of small ones, below 16.
func pack(numbers ...uint8) (packed uint64) {
	for _, n := range numbers {
		packed = packed<<4 | uint64(n)
	}
	return packed
}
