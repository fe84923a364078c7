package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

var evalshaTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// BenchmarkScripts measures how long a server takes to execute the scripts: with several names, beside readers, and with
// many permits. The result is the median of many batches:
//
//	go test ./internal/script -run '^$' -bench Scripts -benchtime 20000x
func BenchmarkScripts(b *testing.B) {
	client := realredis.Start(b, 1)[0].Client()
	place := Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
	last := time.Now().Add(time.Hour).UnixMilli()
	none, leaves := noTurn, Turnover{Leave: []Ticket{aTicket(1, us)}}
	run := func(n int, before [][]any, commands map[string]Command) {
		for name, c := range commands {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				require.NoError(b, client.Do(b.Context(), c.InFull()...).Err())
				measure(b, client, append([][]any{{"flushdb"}}, before...), c.Args)
			})
		}
	}
	for _, k := range []int{1, 2, 4, 16} {
		var names []string
		set := []any{"mset"}
		for i := range k {
			names = append(names, fmt.Sprintf("lock%02d", i))
			set = append(set, names[i], "v")
		}
		lock, m := newLock(names[0], "v"), NewMulti(names).With("v")
		if k == 1 {
			run(k, nil, map[string]Command{"enter": Enter(lock, ttl, place, noFence)})
			run(k, [][]any{set}, map[string]Command{"release": Release(lock, noProcess, none, noFence), "extend": Extend(lock, ttl)})
			continue
		}
		run(k, nil, map[string]Command{"enter": EnterMulti(m, ttl, place, noFence)})
		run(k, [][]any{set}, map[string]Command{"release": ReleaseMulti(m, noProcess, none, noFence), "extend": ExtendMulti(m, ttl)})
	}
	for _, n := range []int{1, 10, 100} {
		text := "readers\n"
		for i := range n {
			text += fmt.Sprintf("abcdefghijklmnopqrst%06d %013d\n", i, last+int64(i))
		}
		run(n, [][]any{{"set", "lock", text, "px", ttl}}, map[string]Command{"reader enters": EnterShared(lockV, ttl, place, noFence)})
		run(n, [][]any{{"set", "lock", text + fmt.Sprintf("v %013d\n", last+ttl), "px", ttl}}, map[string]Command{
			"reader extends": ExtendShared(lockV, ttl), "reader leaves": ReleaseShared(lockV, noProcess, none, noFence),
		})
	}
	for _, n := range []int{4, 64, 256} {
		s := NewSemaphore("lock", n)
		others := []any{"mset"}
		for i := range n - 1 {
			others = append(others, slot(i), "w")
		}
		waits := []any{"set", slotQueue, record(ticket(2, they), last), "px", ttl}
		run(n, [][]any{others}, map[string]Command{"permits enter": EnterPermits(s, "v", ttl, wants(1, 0), place)})
		run(n, [][]any{append(others, slot(n-1), "v"), waits}, map[string]Command{
			"permits refuse": EnterPermits(s, "x", ttl, wants(1, 0), place), "permits leave": ReleaseSlots(s, "v", 1, s.AllBut(slotsOf()), slotsOf(), ProcessOf(us), leaves),
		})
	}
}

// measure reports the median time that a command takes. before prepares the node for it.
func measure(b *testing.B, client *redis.Client, before [][]any, command []any) {
	b.Helper()
	var times []float64
	const batch = 100
	for done := 0; done < b.N; done += batch {
		require.NoError(b, client.ConfigResetStat(b.Context()).Err())
		_, err := client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for range batch {
				for _, args := range before {
					p.Do(b.Context(), args...)
				}
				p.Do(b.Context(), command...)
			}
			return nil
		})
		require.NoError(b, err)
		stats := evalshaTime.FindStringSubmatch(client.Info(b.Context(), "commandstats").Val())
		require.NotNil(b, stats)
		usec, _ := strconv.ParseFloat(stats[1], 64)
		times = append(times, usec/batch)
	}
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], "µs/call")
}
