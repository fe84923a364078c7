package lease

import (
	"container/heap"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// A pacer makes watchdogs wait while a node is behind with its replies. Otherwise the extensions of very many locks that
// are due at once would pile up there, and the limit of outstanding replies would refuse some. The watchdogs whose
// validity ends first go on first. The first of them does not wait once half of its validity has passed. So one with a
// longer expiry may wait for longer than that, but never behind one whose validity ends later.
type pacer struct {
	alarms   *alarm.Schedule
	isBehind func() bool
	again    alarm.Alarm // when to let watchdogs go on

	mu      sync.Mutex // guards what follows
	waiting earliest
}

// extensionsInARow spreads the extensions of many locks that are due at once. The schedule pauses for 1 ms
// after that many alarms. Each extension takes two alarms, so that at most 64,000 begin in a second.
const extensionsInARow = 128

// pacePause is how long the pacer pauses before it looks at the nodes again.
const pacePause = time.Millisecond

func (p *pacer) init(alarms *alarm.Schedule, isBehind func() bool) {
	p.alarms, p.isBehind = alarms, isBehind
	p.again.What = p
}

// admits reports whether a watchdog may begin a round at now. If not, the pacer calls its goOn later. The lease is valid
// for left, and was valid for validity after its last extension.
func (p *pacer) admits(w resumer, now clock.Instant, left, validity time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 && !p.isBehind() || left < validity/2 {
		return true
	}
	heap.Push(&p.waiting, paced{w, now.Mono + left, now.Mono + left - validity/2})
	p.alarms.Set(&p.again, time.Now().Add(pacePause))
	return false
}

// Fire implements alarm.Firer: it lets watchdogs go on, until a node is behind.
func (p *pacer) Fire(closing bool) {
	for n := 0; n < extensionsInARow && !closing; n++ {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.mu.Unlock()
			return
		}
		if p.isBehind() && p.waiting[0].until > clock.Now().Mono {
			p.mu.Unlock()
			break
		}
		next := heap.Pop(&p.waiting).(paced)
		p.mu.Unlock()
		next.goOn()
	}
	p.alarms.Set(&p.again, time.Now().Add(pacePause))
}

// A resumer is a watchdog.
type resumer interface{ goOn() }

// A paced is a watchdog that waits. It may have been stopped since. The times are by the monotonic clock.
type paced struct {
	resumer
	ends  time.Duration // when its validity ends
	until time.Duration // when it waits no longer: half of the validity has passed
}

// earliest implements heap.Interface, the watchdog whose validity ends first at the front.
type earliest []paced

func (e *earliest) Len() int           { return len(*e) }
func (e *earliest) Less(i, j int) bool { return (*e)[i].ends < (*e)[j].ends }
func (e *earliest) Swap(i, j int)      { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }

// Push implements heap.Interface.
func (e *earliest) Push(x any) { *e = append(*e, x.(paced)) }

// Pop implements heap.Interface.
func (e *earliest) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = paced{}
	*e = (*e)[:last]
	return x
}
