package cost

import "github.com/seed14bd9ef4/redsync"

func init() {
	add(Row{Name: "Lock + Unlock, with an owner", Call: pairs(redsync.WithOwner("worker-7@host"))})
}
