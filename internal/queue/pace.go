package queue

import (
	"slices"
	"time"
)

// This file is about the retry delays of one Lock. A waiter that stands behind others does not wake up
// after each of its delays. If its tries are limited, it sleeps until the last delay is over, and then
// gives up.

// maxAhead bounds how many delays are drawn ahead. A waiter with more tries left wakes up in between.
const maxAhead = 256

// minTry is the least retry delay after a try that asked no node, or failed for another reason than a taken lock.
const minTry = 10 * time.Millisecond

// A pace holds the retry delays of a waiter. Only the goroutine of the waiter uses it.
type pace struct {
	delay func(tries int) time.Duration
	limit int // the last try; 0 is no limit

	try  int       // the number of the current try: the last one that was made or passed over
	tick time.Time // when the delay after the current try is over

	last   time.Duration   // the delay that begin has drawn last
	ahead  []time.Duration // the delays after the tries to come, drawn already
	asleep bool            // the waiter ignores tick
}

// begin begins the delay after the current try. A delay shorter than least is lengthened to least. If the delay
// is negative, begin begins none and reports false.
func (p *pace) begin(least time.Duration) bool {
	p.last = p.draw()
	if p.last < 0 {
		return false
	}
	p.tick = time.Now().Add(max(p.last, least))
	return true
}

// draw returns the delay after the current try.
func (p *pace) draw() time.Duration {
	if len(p.ahead) == 0 {
		return p.delay(p.try)
	}
	d := p.ahead[0]
	p.ahead = p.ahead[1:]
	return d
}

// sleep makes the waiter ignore tick, and returns when the waiter must wake up even if nothing has happened.
// It draws the delays before the last try, at most maxAhead and only up to a negative one, and returns when
// they are over. Without a limit it draws none, and returns the zero time: never.
func (p *pace) sleep() time.Time {
	p.asleep = true
	if p.limit == 0 {
		return time.Time{}
	}
	at := p.tick
	n := min(p.limit-p.try-1, maxAhead)
	p.ahead = slices.Grow(p.ahead, max(n-len(p.ahead), 0))
	for i := range n {
		if i == len(p.ahead) {
			p.ahead = append(p.ahead, p.delay(p.try+1+i))
		}
		if p.ahead[i] < 0 {
			break
		}
		at = at.Add(max(p.ahead[i], minTry))
	}
	return at
}

// pass passes over the try that was due at tick, and moves tick to the end of the delay after that try.
func (p *pace) pass() {
	d := max(p.draw(), minTry)
	p.try++
	p.tick = p.tick.Add(d)
}

// wake ends the sleep: the waiter goes by tick again. It passes over the tries that were due by now, as far
// as sleep has drawn the delays after them. Without a limit sleep has drawn none: then the current delay
// begins anew if it is over.
func (p *pace) wake(now time.Time) {
	p.asleep = false
	for !now.Before(p.tick) && len(p.ahead) > 0 && p.ahead[0] >= 0 {
		p.pass()
	}
	if p.limit == 0 && !now.Before(p.tick) {
		p.tick = now.Add(max(p.last, minTry))
	}
}
