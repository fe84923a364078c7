package main

import (
	"bufio"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is the consumption since the start of the processes.
type usage struct {
	mallocs        uint64
	client, server time.Duration // CPU of this process and of all nodes
}

func (l *lab) usage(ctx context.Context) (usage, error) {
	var u usage
	for _, c := range l.look {
		text, err := c.Info(ctx, "cpu").Result()
		if err != nil {
			return u, fmt.Errorf("INFO cpu: %w", err)
		}
		info := parseInfo(text)
		for _, key := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(info[key], 64)
			if err != nil {
				return u, fmt.Errorf("INFO cpu: %s: %w", key, err)
			}
			u.server += time.Duration(seconds * float64(time.Second))
		}
	}
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return u, err
	}
	u.client = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	u.mallocs = mem.Mallocs
	return u, nil
}

// since adds the consumption per pair between two readings.
func (f figures) since(before, after usage) {
	if n := f["pairs"]; n > 0 {
		f["allocs"] = float64(after.mallocs-before.mallocs) / n
		f["client_cpu"] = micros(after.client-before.client) / n
		f["server_cpu"] = micros(after.server-before.server) / n
	}
}

// parseInfo returns the fields of an INFO reply.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if key, value, ok := strings.Cut(sc.Text(), ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields
}

// parseCommandStats reads from INFO commandstats how often each command was called. Subcommands have
// names like "client|setinfo".
func parseCommandStats(text string) map[string]int64 {
	calls := make(map[string]int64)
	for key, value := range parseInfo(text) {
		name, ok := strings.CutPrefix(key, "cmdstat_")
		if !ok {
			continue
		}
		for field := range strings.SplitSeq(value, ",") {
			if n, ok := strings.CutPrefix(field, "calls="); ok {
				calls[name], _ = strconv.ParseInt(n, 10, 64)
			}
		}
	}
	return calls
}
