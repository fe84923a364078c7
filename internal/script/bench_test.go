package script

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

var evalshaTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// BenchmarkScripts measures how long a server takes to execute each script: what enters finds its keys free, and the others
// find the value, beside a hundred readers where that is a reader's. The result is the median of many batches:
//
//	go test ./internal/script -run '^$' -bench Scripts -benchtime 20000x
func BenchmarkScripts(b *testing.B) {
	client := realredis.Start(b, 1)[0].Client()
	value := map[bool]string{false: "v", true: "readers\n" + strings.Repeat("w 9999999999998\n", 100) + "v 9999999999999\n"}
	for what, c := range everyCommand() {
		b.Run(what, func(b *testing.B) {
			require.NoError(b, client.Do(b.Context(), c.InFull()...).Err())
			before := [][]any{{"flushdb"}}
			for _, key := range keysIn(c) {
				if !strings.HasPrefix(what, "enter") && (key == "lock" || key == "other" || strings.Contains(key, ":slot:")) {
					before = append(before, []any{"set", key, value[strings.Contains(what, "shared")], "px", ttl})
				}
			}
			measure(b, client, before, c.Args)
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
