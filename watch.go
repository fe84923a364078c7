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

// Watch yields a Status of the lock of m, and a further one whenever the holders have changed. m need not be held.
//
//	for st, err := range rs.NewMutex("scheduler").Watch(ctx) {
//		if err != nil {
//			return err // ctx is done, or rs was closed
//		}
//		show(st.State, st.Holders)
//	}
//
// Watch looks once a second, when the TTL of a holder has run out, and when a term of a leader begins or ends (see
// Lead). So it may miss a short lock. If too few nodes answer, it yields StateUnknown, and goes on. A Status is no
// proof: see Inspect.
//
// Errors, with an empty Status, end the loop:
//
//   - The error of ctx, and its cause.
//   - ErrClosed.
//   - One that names an option or a name that cannot be used.
func (m *Mutex) Watch(ctx context.Context) iter.Seq2[Status, error] {
	ctx = orBackground(ctx)
	return func(yield func(Status, error) bool) {
		if err := m.watch(ctx, yield); err != nil {
			yield(Status{}, m.failure("watch", err))
		}
	}
}

// watch returns nil once yield has returned false.
func (m *Mutex) watch(ctx context.Context, yield func(Status, error) bool) error {
	w, err := m.beginWatch(ctx)
	if err != nil {
		return err
	}
	defer w.Leave()
	defer context.AfterFunc(ctx, w.Leave)() // the body may outlast ctx
	for {
		seen, ok := w.Next(ctx)
		if !ok {
			return m.interruption(ctx)
		}
		if s, _ := m.statusOf(seen); !yield(s, nil) {
			return nil
		}
	}
}

// beginWatch returns a watcher of the lock of m. The caller must Leave it.
func (m *Mutex) beginWatch(ctx context.Context) (*watch.Watcher, error) {
	t, err := m.beginCall()
	if err != nil {
		return nil, err
	}
	defer m.core.keeper.EndCall()
	if ctx.Err() != nil {
		return nil, contextErrors(ctx)
	}
	names, n := m.names(), m.set.permits
	l := watch.Lock{
		Terms: t, Holders: holdersText(m.inspectedKeys(), len(names), n != 0),
	}
	if len(names) == 1 && n == 0 {
		l.Led = names[0]
	}
	return watch.Begin(l), nil
}

// holdersText returns the Holders of a watch.Lock. keys are the slots of a semaphore if permits is true.
func holdersText(keys []int, names int, permits bool) func(lease.Inspected) string {
	return func(seen lease.Inspected) string {
		var b strings.Builder
		fmt.Fprint(&b, stateOf(seen, keys))
		if names > 1 {
			for i := range names {
				fmt.Fprint(&b, " ", stateOf(seen, []int{i}))
			}
		}
		holdings := seen.Holdings()
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
