package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// A stratum is a group of candidates that makes up at least a given part of every sample.
type stratum struct {
	name  string
	has   func(*mutant) bool
	least int // the least number of them in a sample of 300
}

// strata are in order: a mutant belongs to the first whose has function accepts it.
var strata = []stratum{
	{"scripts", func(m *mutant) bool { return strings.HasSuffix(m.File, ".lua") }, 40},
	{"wire", func(m *mutant) bool { return strings.HasPrefix(m.File, "internal/wire/") }, 40},
	{"fencing", func(m *mutant) bool { return strings.HasPrefix(m.File, "fencing/") }, 20},
	{"library", func(*mutant) bool { return true }, 0},
}

func stratumOf(m *mutant) int {
	return slices.IndexFunc(strata, func(s stratum) bool { return s.has(m) })
}

// draw returns a sample of count of the candidates that compile, in the order of the tree.
// A stratum's share of the sample is its share of the candidates, but at least its minimum.
//
// Candidates are drawn in the order of a hash of seed and identity, so that an edit of the code
// changes little of the sample besides the mutants of the edited lines.
func draw(candidates []*mutant, seed uint64, count int, compiles func(*mutant) bool) []*mutant {
	order := map[*mutant]uint64{}
	groups := make([][]*mutant, len(strata))
	for _, m := range candidates {
		order[m] = lot(seed, m)
		i := stratumOf(m)
		groups[i] = append(groups[i], m)
	}
	chosen := map[*mutant]bool{}
	size := 0
	for i, share := range shares(groups, count) {
		size += share // on top of what earlier groups could not fill
		slices.SortFunc(groups[i], func(a, b *mutant) int { return cmp.Compare(order[a], order[b]) })
		for _, m := range groups[i] {
			if size > 0 && compiles(m) {
				chosen[m] = true
				size--
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(candidates), func(m *mutant) bool { return !chosen[m] })
}

func lot(seed uint64, m *mutant) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.id()))
	return binary.BigEndian.Uint64(sum[:])
}

// shares returns how many of count fall to each group.
func shares(groups [][]*mutant, count int) []int {
	all, left := 0, count
	for _, group := range groups {
		all += len(group)
	}
	sizes := make([]int, len(groups))
	for i, group := range groups {
		sizes[i] = min(left, len(group), max(count*len(group)/max(all, 1), (strata[i].least*count+299)/300))
		left -= sizes[i]
	}
	for i := len(groups) - 1; i >= 0; i-- { // the last groups take the remainder, as far as they have candidates
		more := min(left, len(groups[i])-sizes[i])
		sizes[i] += more
		left -= more
	}
	return sizes
}
