package script_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// BenchmarkPermits measures how long a server takes to execute the scripts of permits. The result is the median of many
// batches:
//
//	go test ./internal/script -run '^$' -bench Permits -benchtime 20000x
func BenchmarkPermits(b *testing.B) {
	client := realredis.Start(b, 1)[0].Client()
	place := script.Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
	for _, n := range []int{4, 16, 64, 256} {
		s := script.NewSemaphore("lock", n)
		all := s.AllBut(slots())
		fill := func(but int, with ...any) [][]any {
			mset := []any{"mset"}
			for i := range n {
				if i != but {
					mset = append(mset, slot(i), "w")
				}
			}
			return [][]any{{"del", slot(but), slotQueue}, append(mset, with...)}
		}
		empty := [][]any{append([]any{"del", slotQueue}, keysOf(s, all)...)}
		full := fill(n)
		mine, waited := fill(n-1, slot(n-1), "v"), fill(n-1, slot(n-1), "v")
		waited = append(waited, []any{"set", slotQueue, record(ticket(2, they), time.Now().Add(time.Hour).UnixMilli()), "px", ttl})
		keeps := slots(n - 1)
		process, leaves := script.ProcessOf(us), script.Turnover{Leave: []script.Ticket{aTicket(1, us)}}
		for _, c := range []struct {
			name    string
			before  [][]any
			command script.Command
		}{
			{"enter", empty, script.EnterPermits(s, "v", ttl, wants(1, 0), script.Place{})},
			{"enter, only the last is free", fill(n - 1), script.EnterPermits(s, "v", ttl, wants(1, 0), script.Place{})},
			{"enter, full", full, script.EnterPermits(s, "v", ttl, wants(1, 0), script.Place{})},
			{"enter with a ticket", empty, script.EnterPermits(s, "v", ttl, wants(1, 0), place)},
			{"enter with a ticket, only the last is free", fill(n - 1), script.EnterPermits(s, "v", ttl, wants(1, 0), place)},
			{"enter with a ticket, full", full, script.EnterPermits(s, "v", ttl, wants(1, 0), place)},
			{"release", mine, script.ReleaseSlot(s, s.Lock(n-1, "v"), script.Process{}, script.Turnover{})},
			{"release, somebody waits", waited, script.ReleaseSlot(s, s.Lock(n-1, "v"), script.Process{}, script.Turnover{})},
			{"give back all", mine, script.ReleaseSlots(s, "v", 1, all, slots(), process, script.Turnover{})},
			{"give back all, others are free", append(empty[:1:1], []any{"set", slot(n - 1), "v"}), script.ReleaseSlots(s, "v", 1, all, slots(), process, script.Turnover{})},
			{"give back all, nothing was granted", full, script.ReleaseSlots(s, "v", 1, all, slots(), process, script.Turnover{})},
			{"give back others, a ticket leaves", waited, script.ReleaseSlots(s, "v", 1, s.AllBut(keeps), keeps, process, leaves)},
		} {
			b.Run(fmt.Sprintf("%s/permits=%d", c.name, n), func(b *testing.B) {
				require.NoError(b, client.Do(b.Context(), c.command.InFull()...).Err())
				measure(b, client, c.before, map[string][]any{"call": c.command.Args})
			})
		}
	}
}

// keysOf returns the keys of slots.
func keysOf(s *script.Semaphore, slots script.Slots) (keys []any) {
	for i := range slots.All() {
		keys = append(keys, s.Lock(i, "").Name())
	}
	return keys
}
