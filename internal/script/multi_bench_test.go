package script_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

var evalshaTime = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// BenchmarkScripts measures how long a server takes to execute the scripts of locks of one name and of several:
//
//	go test ./internal/script -run '^$' -bench Scripts -benchtime 20000x
func BenchmarkScripts(b *testing.B) {
	client := realredis.Start(b, 1)[0].Client()
	for _, k := range []int{1, 2, 4, 8, 16} {
		var names []string
		var locks, all []any
		for i := range k {
			name := fmt.Sprintf("lock%02d", i)
			names = append(names, name)
			locks = append(locks, name, "v")
			all = append(all, name, script.QueueKey(name))
		}
		lock, m := script.NewLock(names[0], "v"), script.NewMulti(names).With("v")
		enter := func(place script.Place) script.Command {
			if k == 1 {
				return script.Enter(lock, ttl, place, script.Fence{})
			}
			return script.EnterMulti(m, ttl, place, script.Fence{})
		}
		release, extend := script.Release(lock, script.Process{}, script.Turnover{}, script.Fence{}), script.Extend(lock, ttl)
		if k > 1 {
			release, extend = script.ReleaseMulti(m, script.Process{}, script.Turnover{}, script.Fence{}), script.ExtendMulti(m, ttl)
		}
		set := append([]any{"mset"}, locks...)
		for _, c := range []struct {
			name    string
			before  []any
			command script.Command
		}{
			{"enter", nil, enter(script.Place{})},
			{"enter with a ticket", nil, enter(script.Place{Ticket: aTicket(1, us), Alive: alive})},
			{"release", set, release},
			{"extend", set, extend},
		} {
			b.Run(fmt.Sprintf("%s/names=%d", c.name, k), func(b *testing.B) {
				require.NoError(b, client.Do(b.Context(), c.command.InFull()...).Err())
				require.NoError(b, client.ConfigResetStat(b.Context()).Err())
				for done := 0; done < b.N; done += 100 {
					_, err := client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
						for range min(100, b.N-done) {
							p.Do(b.Context(), append([]any{"del"}, all...)...)
							if c.before != nil {
								p.Do(b.Context(), c.before...)
							}
							p.Do(b.Context(), c.command.Args...)
						}
						return nil
					})
					require.NoError(b, err)
				}
				info, err := client.Info(b.Context(), "commandstats").Result()
				require.NoError(b, err)
				stats := evalshaTime.FindStringSubmatch(info)
				require.NotNil(b, stats)
				calls, _ := strconv.ParseFloat(stats[1], 64)
				usec, _ := strconv.ParseFloat(stats[2], 64)
				b.ReportMetric(usec/calls, "µs/call")
			})
		}
	}
}
