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
	client, server time.Duration   // CPU of this process and of all nodes
	kernel         time.Duration   // the part of client in system calls
	each           []time.Duration // the part of server of each node

	commands, reads float64 // of all nodes
}

func (l *lab) usage(ctx context.Context) (usage, error) {
	var u usage
	for _, c := range l.look {
		text, err := c.Info(ctx).Result()
		if err != nil {
			return u, fmt.Errorf("INFO: %w", err)
		}
		info, others := parseInfo(text), u.server
		for key, add := range map[string]func(v float64){
			"used_cpu_user":            func(v float64) { u.server += time.Duration(v * float64(time.Second)) },
			"used_cpu_sys":             func(v float64) { u.server += time.Duration(v * float64(time.Second)) },
			"total_commands_processed": func(v float64) { u.commands += v },
			"total_reads_processed":    func(v float64) { u.reads += v },
		} {
			v, err := strconv.ParseFloat(info[key], 64)
			if err != nil {
				return u, fmt.Errorf("INFO: %s: %w", key, err)
			}
			add(v)
		}
		u.each = append(u.each, u.server-others)
	}
	u.client, u.kernel = ownCPU()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	u.mallocs = mem.Mallocs
	return u, nil
}

// ownCPU returns the CPU of this process, and the part of it in system calls.
func ownCPU() (all, kernel time.Duration) {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru) // it fails only for other arguments
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), time.Duration(ru.Stime.Nano())
}

// since adds the consumption per pair between two readings, also of the node that used most CPU; in percent, the share of the client's CPU in system calls, and
// that of all processors that was busy; and how many commands a node executed for each read.
func (f figures) since(before, after usage) {
	if n := f["pairs"]; n > 0 {
		f["allocs"] = float64(after.mallocs-before.mallocs) / n
		f["client_cpu"] = micros(after.client-before.client) / n
		f["server_cpu"] = micros(after.server-before.server) / n
		for i := range after.each {
			f["busiest"] = max(f["busiest"], micros(after.each[i]-before.each[i])/n)
		}
		f["kernel"] = 100 * float64(after.kernel-before.kernel) / float64(after.client-before.client)
		f["busy"] = 100 * (f["client_cpu"] + f["server_cpu"]) * f["rate"] / 1e6 / float64(runtime.NumCPU())
		f["batch"] = (after.commands - before.commands) / (after.reads - before.reads)
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
