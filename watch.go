package redsync

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/watch"
)

// This file tells when others hold a lock than before.

// Watch yields a Status of the lock of m, and then a further one whenever the holders have changed. m need not be held. A
// standby that shows who leads:
//
//	for st, err := range rs.NewMutex("scheduler").Watch(ctx) {
//		switch {
//		case err != nil:
//			return err // ctx is done, or rs was closed
//		case st.State == redsync.StateHeld:
//			log.Printf("%s leads", st.Holders[0].Owner) // with WithOwner; otherwise show the ID
//		default:
//			log.Printf("the leadership is %v", st.State) // free or unknown
//		}
//	}
//
// The holders have changed if others hold the lock, if a holder is a reader now (Downgrade), if it holds other names or
// another number of permits, or if a State is another one, also one of Status.Names. A change of TTLs, of waiters, of the
// register or of nodes alone yields nothing. The Status that is yielded has the current ones.
//
// A Status means what it means for Inspect, and is no proof either: do not decide with it whether you have the lock. Watch
// waits for no more nodes than it needs to be certain who holds the lock. So Status.Nodes has an error for each node that
// had not answered by then. If too few nodes answer, Watch yields a Status with StateUnknown and no error, and goes on.
//
// # When it looks
//
// Watch reads the lock when a loop begins, and then once a second. It also reads it when the TTL of a holder has run out, and when a leader says that it
// leads or has resigned (see Lead). So it sees another leader within two round trips, and another holder of other locks within a
// second. It misses holds that end before it looks: those of less than a second, unless Lead has them. If the loop's body
// takes long, Watch then yields the latest Status: it may leave out some in between, and never goes back.
//
// A Mutex with WithPermits or of NewMultiMutex listens to no leader. Nor does any on nodes that deny SUBSCRIBE, or after
// Close of the leader's Redsync. Then reads once a second show the changes.
//
// # What it costs
//
// All loops of one process on the same name, kind (a lock or a semaphore) and number of permits share their reads, and the
// node deadline of the first loop: one command for each node and second. Each message of a leader adds a read, also a forged
// one, but a process never reads one lock more than 20 times a second. While it watches, a process has one further
// connection to each node for each name. Watch starts all that with the first loop. It has ended when the last loop ends, by
// break, return, panic or the end of ctx, even while a body blocks.
//
// # Errors
//
// An error is yielded once, with the zero Status, and ends the loop: the error and the cause of ctx, ErrClosed, or an error
// that names the option or the name that cannot be used. The sequence may be used again, and by many goroutines at once.
func (m *Mutex) Watch(ctx context.Context) iter.Seq2[Status, error] {
	ctx = orBackground(ctx)
	return func(yield func(Status, error) bool) {
		if err := m.watch(ctx, yield); err != nil {
			yield(Status{}, m.failure("watch", err))
		}
	}
}

// watch yields a Status for each change. It returns nil once yield has returned false, and otherwise why it has ended.
func (m *Mutex) watch(ctx context.Context, yield func(Status, error) bool) error {
	w, err := m.beginWatch(ctx)
	if err != nil {
		return err
	}
	defer w.Leave()
	defer context.AfterFunc(ctx, w.Leave)() // the body may block for longer than ctx lasts
	for {
		sight := w.Next(ctx)
		if sight == nil {
			return m.interruption(ctx)
		}
		if s, _ := m.statusOf(sight.Inspected); !yield(s, nil) {
			return nil
		}
	}
}

// beginWatch adds a watcher of the lock of m. The caller must end it with Leave.
func (m *Mutex) beginWatch(ctx context.Context) (*watch.Watcher, error) {
	t, err := m.beginCall()
	if err != nil {
		return nil, err
	}
	defer m.core.endCall()
	if ctx.Err() != nil {
		return nil, contextErrors(ctx)
	}
	names, n := m.names(), m.set.permits
	l := watch.Lock{
		Key: fmt.Sprintf("%d %q", n, names), Terms: &t.Terms,
		Holders: holdersBy(m.inspectedKeys(), len(names), n != 0),
	}
	if len(names) == 1 && n == 0 {
		l.Led = names[0]
	}
	return m.core.watches.Join(l), nil
}

// holdersBy returns a function that turns what was seen of a lock into a text, which is another one if the holders are
// others. keys are all keys that were read. permits says that they are the slots of a semaphore; otherwise they are those of
// so many names.
func holdersBy(keys []int, names int, permits bool) func(lease.Inspected) string {
	return func(seen lease.Inspected) string {
		var b strings.Builder
		holdings := seen.Holdings()
		fmt.Fprint(&b, stateOf(seen, holdings, keys))
		for i := range names {
			if names > 1 {
				fmt.Fprint(&b, " ", stateOf(seen, holdings, []int{i}))
			}
		}
		slices.SortFunc(holdings, func(a, b claim.Holding) int { return strings.Compare(a.Value, b.Value) })
		for _, h := range holdings {
			if permits {
				h.Keys = []int{len(h.Keys)}
			}
			fmt.Fprintf(&b, "\n%q %v %t", h.Value, h.Keys, h.Shared)
		}
		return b.String()
	}
}
