package script

import _ "embed" // the source

// This file makes the releases of a lease whose keys stay for a rest of time: see shorten.lua. They never make a key
// last longer, so they may be repeated, and come late.

//go:embed shorten.lua
var shorten string

var shortenScript = newScript(shorten)

// Shorten shortens all keys of a lock, or slots of a permit, and replies as to Release.
func Shorten(l Lock, rest int64, process Process, turnover Turnover, fence Fence) Command {
	k := len(l.keys)
	r := newRequest(shortenScript, keyCount+11+3*k)
	r.keys(l.keys...)
	if turnover.Quietly {
		process = Process{}
	} else {
		r.queues(l.of)
	}
	queues := r.n - k
	if fence.Token != 0 {
		r.registers(l.of)
	}
	r.args(l.value, rest, k, queues, process.argument())
	r.tokenOrNone(fence)
	return r.turnover(turnover)
}
