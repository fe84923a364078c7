package cost

import "github.com/seed14bd9ef4/redsync"

func init() {
	joint := func(nodes *Nodes) *redsync.Redsync { return redsync.NewJoint(nodes.pools(5, 0), nodes.pools(5, 2)) }
	add(Row{Name: "Lock + Unlock, joint 5 + 5, 3 in common", on: joint, Call: pairs()})
}
