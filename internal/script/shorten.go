package script

import _ "embed" // the source

// This file makes the commands that end a lease whose keys stay for a rest of time: see shorten.lua. They never make a
// key last longer, so they may be repeated, and come late. Otherwise they are like the releases.

//go:embed shorten.lua
var shorten string

var shortenScript = newScript(shorten)

// Shorten shortens a lock, and replies as to Release.
func Shorten(l Lock, rest int64, process Process, turnover Turnover, fence Fence) Command {
	return shortenOne(l, rest, l.queue(), process, turnover, fence)
}

// ShortenSlot shortens a slot of s.
func ShortenSlot(s *Semaphore, slot Lock, rest int64, process Process, turnover Turnover) Command {
	return shortenOne(slot, rest, s.queue, process, turnover, Fence{})
}

func shortenOne(l Lock, rest int64, queue any, process Process, turnover Turnover, fence Fence) Command {
	queues := turnover.queues(queue)
	r := newRequest(shortenScript, 16)
	r.keys(l.key)
	r.keys(queues...)
	r.register(l, fence)
	return r.shortens(l.value, rest, 1, queues, process, turnover, fence)
}

// ShortenMulti shortens m. ParseReleasedMulti reads the reply.
func ShortenMulti(m Multi, rest int64, process Process, turnover Turnover, fence Fence) Command {
	queues := turnover.queues(m.names.queues...)
	r := newMultiRequest(shortenScript, m, 12)
	r.keys(queues...)
	r.registers(m, fence)
	return r.shortens(m.value, rest, len(m.names.locks), queues, process, turnover, fence)
}

// ShortenSlots shortens several slots, and replies as to Release.
func ShortenSlots(s *Semaphore, slots Slots, value any, rest int64, process Process, turnover Turnover) Command {
	keys, queues := s.keysOf(slots), turnover.queues(s.queue)
	r := newRequest(shortenScript, keyCount+1+len(keys)+16)
	r.keys(keys...)
	r.keys(queues...)
	return r.shortens(value, rest, len(keys), queues, process, turnover, Fence{})
}

// shortens adds the arguments of shorten.lua to the keys.
func (r *request) shortens(
	value any, rest int64, locks int, queues []any, process Process, turnover Turnover, fence Fence,
) Command {
	if turnover.Quietly {
		process = Process{}
	}
	r.args(value, rest, locks, len(queues), process.argument())
	r.tokenOrNone(fence)
	return r.turnover(turnover)
}
