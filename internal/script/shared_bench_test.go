package script_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// BenchmarkReaders measures how long a server takes to execute the scripts of readers, beside other readers. It
// measures the scripts of one writer, too, as they are and as they were before there were readers. The result is
// the median of many batches:
//
//	go test ./internal/script -run '^$' -bench Readers -benchtime 20000x
func BenchmarkReaders(b *testing.B) {
	client := realredis.Start(b, 1)[0].Client()
	deadline := func(after time.Duration) int64 { return time.Now().Add(after).UnixMilli() }
	place := script.Place{Ticket: aTicket(1, us), Alive: alive}
	plain := script.Release(of("v"), script.Process{}, script.Turnover{}, script.Fence{})
	writes := []any{"set", "lock", "v", "px", ttl}
	waits := []any{"set", queueKey, record(ticket(2, they), deadline(time.Hour)), "px", ttl}
	leaves := script.Release(of("v"), script.ProcessOf(us), script.Turnover{Leave: []script.Ticket{aTicket(1, us)}}, script.Fence{})
	waitsTwo := []any{"set", queueKey, record(ticket(1, us), deadline(time.Hour)) + record(ticket(2, they), deadline(time.Hour)), "px", ttl}
	for _, c := range []struct {
		name    string
		before  [][]any
		script  string
		command script.Command
	}{
		{"enter with a ticket", nil, "enter", script.Enter(of("v"), ttl, place, script.Fence{})},
		{"enter with a ticket, taken", [][]any{writes, waits}, "enter", script.Enter(of("v"), ttl, place, script.Fence{})},
		{"release", [][]any{writes}, "release", plain},
		{"release, somebody waits", [][]any{writes, waits}, "release", plain},
		{"release, a ticket leaves", [][]any{writes, waitsTwo}, "release", leaves},
		{"release, taken", [][]any{{"set", "lock", "w", "px", ttl}}, "release", plain},
	} {
		old := slices.Clone(c.command.Args)
		sha, err := client.ScriptLoad(b.Context(), oldSource(c.script)).Result()
		require.NoError(b, err)
		old[1] = sha
		b.Run("writer/"+c.name, func(b *testing.B) {
			require.NoError(b, client.Do(b.Context(), c.command.InFull()...).Err())
			measure(b, client, c.before, map[string][]any{"before": old, "now": c.command.Args})
		})
	}
	for _, n := range []int{0, 1, 10, 100} {
		text := "readers\n"
		for i := range n {
			text += fmt.Sprintf("abcdefghijklmnopqrst%06d %013d\n", i, deadline(time.Hour)+int64(i))
		}
		others := [][]any{{"set", "lock", text, "px", ttl}}
		if n == 0 {
			others = nil
		}
		own := [][]any{{"set", "lock", text + fmt.Sprintf("v %013d\n", deadline(2*time.Hour)), "px", ttl}}
		first := [][]any{{"set", "lock", strings.Replace(text, "\n", fmt.Sprintf("\nv %013d\n", deadline(time.Minute/2)), 1), "px", ttl}}
		for _, c := range []struct {
			name    string
			before  [][]any
			command script.Command
		}{
			{"enter", others, script.EnterShared(of("v"), ttl, script.Place{}, script.Fence{})},
			{"enter for longer", others, script.EnterShared(of("v"), 3*60*ttl, script.Place{}, script.Fence{})},
			{"enter with a ticket", others, script.EnterShared(of("v"), ttl, place, script.Fence{})},
			{"extend", first, script.ExtendShared(of("v"), ttl)},
			{"valid", own, script.ValidShared(of("v"))},
			{"release", own, script.ReleaseShared(of("v"), script.Process{}, script.Turnover{}, script.Fence{})},
		} {
			b.Run(fmt.Sprintf("%s/readers=%d", c.name, n), func(b *testing.B) {
				require.NoError(b, client.Do(b.Context(), c.command.InFull()...).Err())
				measure(b, client, c.before, map[string][]any{"call": c.command.Args})
			})
		}
	}
}

// measure reports the median time that each of commands takes. before prepares the node for each of them. measure runs
// the commands in turn, a batch of each, because the speed of a busy machine changes.
func measure(b *testing.B, client *redis.Client, before [][]any, commands map[string][]any) {
	b.Helper()
	times := map[string][]float64{}
	const batch = 100
	for done := 0; done < b.N; done += batch {
		for name, command := range commands {
			require.NoError(b, client.ConfigResetStat(b.Context()).Err())
			_, err := client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
				for range batch {
					p.Do(b.Context(), "del", "lock", queueKey)
					for _, args := range before {
						p.Do(b.Context(), args...)
					}
					p.Do(b.Context(), command...)
				}
				return nil
			})
			require.NoError(b, err)
			info, err := client.Info(b.Context(), "commandstats").Result()
			require.NoError(b, err)
			stats := evalshaTime.FindStringSubmatch(info)
			require.NotNil(b, stats)
			usec, _ := strconv.ParseFloat(stats[2], 64)
			times[name] = append(times[name], usec/batch)
		}
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], "µs/"+name)
	}
}
