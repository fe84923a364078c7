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
// validity ends first go on first. A watchdog does not wait once half of its validity has passed.
type pacer struct {
	keeper *Keeper
	again  alarm.Alarm // when to let watchdogs go on, in Keeper.extensions

	mu      sync.Mutex // guards what follows
	waiting earliest
}

// pacePause is how long the pacer pauses before it looks at the nodes again.
const pacePause = time.Millisecond

func (p *pacer) init(k *Keeper) { p.keeper, p.again.What = k, p }

// admits reports whether w may begin a round at now. If not, the pacer fires it later.
func (p *pacer) admits(w *watchdog, now clock.Instant) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := w.lease.Remaining(now)
	if len(p.waiting) == 0 && !p.keeper.Set.IsBehind() || left < w.lease.terms.Timing.Validity/2 {
		return true
	}
	heap.Push(&p.waiting, paced{w, now.Mono + left})
	p.keeper.extensions.Set(&p.again, time.Now().Add(pacePause))
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
		if p.keeper.Set.IsBehind() && !p.waiting[0].isLate(clock.Now()) {
			p.mu.Unlock()
			break
		}
		next := heap.Pop(&p.waiting).(paced)
		p.mu.Unlock()
		next.watchdog.fire(true)
	}
	p.keeper.extensions.Set(&p.again, time.Now().Add(pacePause))
}

// A paced is a watchdog that waits. It may have been stopped since.
type paced struct {
	watchdog *watchdog
	ends     time.Duration // its validity, by the monotonic clock
}

// isLate reports whether half of the validity has passed.
func (p paced) isLate(now clock.Instant) bool {
	return p.ends-now.Mono < p.watchdog.lease.terms.Timing.Validity/2
}

// earliest implements heap.Interface, the watchdog whose validity ends first at the front.
type earliest []paced

func (e earliest) Len() int           { return len(e) }
func (e earliest) Less(i, j int) bool { return e[i].ends < e[j].ends }
func (e earliest) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

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
