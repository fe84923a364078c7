package claimtest

import "github.com/seed14bd9ef4/redsync/internal/claim"

// Exclusive returns the claim of names. It has no value yet.
func Exclusive(names ...string) *claim.Exclusive {
	var k claim.Keyed
	k.Init(names...)
	return &k.Exclusive
}

// Shared returns the claim of a reader of a name. It has no value yet.
func Shared(name string) *claim.Shared { return Exclusive(name).Shared() }
