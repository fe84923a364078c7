package main

import (
	"slices"
	"strings"

	"github.com/seed14bd9ef4/redsync"
)

// ids names holders by their IDs.
func ids(holders []redsync.Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, h.ID)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
