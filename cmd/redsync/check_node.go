package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file asks one node how it is set up.

const (
	// samples is how often a node is asked for its time and for an answer: the fastest answer tells most.
	samples = 4

	// nodeLimits bounds how long a node has for all of its answers, in limits of one.
	nodeLimits = 10

	// maxField is how many bytes are shown of what a node says of itself.
	maxField = 128

	// uptimeGranularity is how far uptime_in_seconds may be off. The restart guard adds it.
	uptimeGranularity = time.Second
)

// ask asks the node everything. A panic ends the report of this node alone.
func (r *findings) ask(opt *redis.Options) {
	defer func() {
		if bug := recover(); bug != nil {
			r.fails(fmt.Errorf("check panics at what it says: %v", bug))
		}
	}()
	if err := r.reach(opt); err != nil {
		r.fails(err)
		return
	}
	r.votes = true
	client := oneConn(opt)
	defer client.Close()
	node := pool.New(client)
	defer node.Close()
	r.until = time.Now().Add(nodeLimits * r.limit)
	for _, step := range []func(pool.Pool) error{r.askLatency, r.askInfo, r.askClock, r.askPermissions} {
		if err := step(node); err != nil {
			r.fails(err)
			return
		}
	}
}

// reach returns why the node does not answer, nil if it does. A pool connects as programs do, and its errors have hints.
func (r *findings) reach(opt *redis.Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.limit)
	defer cancel()
	client := oneConn(opt)
	defer client.Close()
	rs := redsync.New(pool.New(client))
	defer rs.Close(ctx) //nolint:errcheck // it holds nothing
	err := rs.Ping(ctx)
	var node *redsync.RedisError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &node) && wire.IsDenied(node.Err):
		return nil // PING is denied, and the connection stands
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return errSilent(r.limit)
	case node != nil && redis.HasErrorPrefix(node.Err, "NOAUTH"):
		return fmt.Errorf("the node asks for a password, and its address has none: %w", node.Err)
	case node != nil:
		return errors.New(strings.TrimPrefix(node.Err.Error(), "pool: handshake: "))
	}
	return err
}

// do sends a command. Its error is one of the connection, and refused one that the node answered with.
func (r *findings) do(node pool.Pool, args ...any) (value any, refused, err error) {
	replies, err := r.send(node, [][]any{args}, true)
	if err != nil {
		return nil, nil, err
	}
	return replies[0].Value, replies[0].Err, nil
}

// send sends commands, and returns their answers. A pool reads them, because it bounds the memory that a reply takes: go-redis
// panics at some lengths, and ends the process at others. Without values the answers have none. The error is one of the
// connection.
func (r *findings) send(node pool.Pool, all [][]any, values bool) ([]wire.Reply, error) {
	arriving := &inOrder{make(chan wire.Reply, len(all)), values}
	for _, args := range all {
		if err := node.Send(wire.Request{Args: args, To: arriving}); err != nil {
			return nil, errBroken(err)
		}
	}
	late := time.NewTimer(r.left())
	defer late.Stop()
	replies := make([]wire.Reply, 0, len(all))
	for range all {
		select {
		case reply := <-arriving.replies:
			if reply.Fate != wire.Answered {
				return nil, errBroken(reply.Err)
			}
			replies = append(replies, reply)
		case <-late.C:
			return nil, errSilent(r.limit)
		}
	}
	return replies, nil
}

// inOrder receives replies. Many that have the longest values would fill the memory.
type inOrder struct {
	replies chan wire.Reply
	values  bool
}

// Receive implements wire.Receiver.
func (o *inOrder) Receive(_ int, reply wire.Reply) {
	if !o.values {
		reply.Value = nil
	}
	o.replies <- reply
}

// left returns how long the node has for its next answer.
func (r *findings) left() time.Duration {
	if r.until.IsZero() {
		return r.limit
	}
	return min(r.limit, time.Until(r.until))
}

// errBroken is why nothing more can be asked.
func errBroken(err error) error {
	return fmt.Errorf("it no longer answers: %s", strings.TrimPrefix(err.Error(), "pool: "))
}

// subscribe subscribes to a channel, and returns what the node answers. The error is one of the connection.
func (r *findings) subscribe(node pool.Pool, channel string) (refused, err error) {
	l := &hearing{make(chan error, 1), make(chan error, 1)}
	s, err := node.(wire.Subscriber).Subscribe(channel, l) //nolint:forcetypeassert // pools of New are Subscribers
	if err != nil {
		return nil, errBroken(err)
	}
	defer s.Close()
	late := time.NewTimer(r.left())
	defer late.Stop()
	select {
	case refused := <-l.answered:
		return refused, nil
	case err := <-l.lost:
		return nil, errBroken(err)
	case <-late.C:
		return nil, errSilent(r.limit)
	}
}

// hearing is the Listener of a trial: it keeps the first that it is told.
type hearing struct{ answered, lost chan error }

func (h *hearing) Subscribed()            { first(h.answered, nil) }
func (h *hearing) Message(string)         {}
func (h *hearing) Unsubscribed(err error) { first(h.lost, err) }
func (h *hearing) Refused(err error)      { first(h.answered, err) }

func first(to chan error, err error) {
	select {
	case to <- err:
	default:
	}
}

// field returns what the node says of itself as a line shows it.
func field(value any) string {
	switch value := value.(type) {
	case string:
		return foreign.Text(value, maxField)
	case int64:
		return strconv.FormatInt(value, 10)
	}
	return "an odd answer"
}

// unknown returns the text of a fact that the node refused to tell.
func unknown(what string, refused error) string {
	switch {
	case refused == nil:
		return fmt.Sprintf("not known: %s does not tell it", what)
	case wire.IsDenied(refused):
		return fmt.Sprintf("not known: this user may not use %s", what)
	}
	return fmt.Sprintf("not known: %s: %v", what, refused)
}

// askLatency finds the latency.
func (r *findings) askLatency(node pool.Pool) error {
	least := time.Duration(-1)
	for range samples {
		start := time.Now()
		_, refused, err := r.do(node, "ping")
		if took := time.Since(start); least < 0 || took < least {
			least = took
		}
		switch {
		case err != nil:
			return err
		case refused != nil:
			r.fact("latency", "%s", unknown("PING", refused))
			return nil
		}
	}
	r.fact("latency", "%v", least.Round(time.Microsecond))
	return nil
}

// An info is the answer to INFO: values by name.
type info map[string]string

// Products are the servers that have a line of their own in INFO, beside the version of Redis that they imitate.
var products = []string{"Valkey", "Redict", "Dragonfly", "Kvrocks", "Garnet"}

// versionOf returns the name of the line with the version of a product.
func versionOf(product string) string { return strings.ToLower(product) + "_version" }

// infoNames are the lines of INFO that check reads: a node may send any number of others.
var infoNames = []string{
	"redis_version", "valkey_version", "redict_version", "dragonfly_version", "kvrocks_version", "garnet_version", "run_id", "role", "connected_slaves", "master_host", "master_port", "cluster_enabled",
	"maxmemory", "maxmemory_policy", "aof_enabled", "uptime_in_seconds",
}

func parseInfo(text string) info {
	i := info{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && slices.Contains(infoNames, name) {
			i[name] = field(value)
		}
	}
	return i
}

// askInfo finds all that INFO tells.
func (r *findings) askInfo(node pool.Pool) error {
	answer, refused, err := r.do(node, "info")
	if err != nil {
		return err
	}
	if refused != nil {
		r.fact("server", "%s", unknown("INFO", refused))
		r.cannotGuard("INFO is refused")
		return nil
	}
	text, _ := answer.(string)
	i := parseInfo(text)
	r.addServer(i)
	r.addRole(i)
	r.addMemory(i)
	if err := r.addPersistence(node, i); err != nil {
		return err
	}
	r.addUptime(i)
	return nil
}

// The oldest versions that are supported.
const (
	leastRedis  = "6.2"
	leastValkey = "7.2"
)

// addServer adds the version and the run id.
func (r *findings) addServer(i info) {
	redis := i["redis_version"]
	product, version, least := "Redis", redis, leastRedis
	for _, p := range products {
		if v := i[versionOf(p)]; v != "" {
			product, version = p, v
			break
		}
	}
	switch {
	case version == "":
		r.fact("server", "%s", unknown("INFO", nil))
	case product == "Redis", product == "Valkey", redis == "":
		r.fact("server", "%s %s", product, version)
	default:
		r.fact("server", "%s %s (as Redis %s)", product, version, redis)
	}
	if product == "Valkey" {
		redis, least = version, leastValkey
	} else {
		product = "Redis"
	}
	if redis != "" && older(redis, least) {
		r.warn("%s %s is too old: Redis %s, Valkey %s or later is needed", product, redis, leastRedis, leastValkey)
	}
	switch r.runID = i["run_id"]; {
	case r.runID == "":
		r.fact("run id", "%s. %s", unknown("INFO", nil), notCompared)
	case strings.Trim(r.runID, "0") == "":
		r.fact("run id", "not known: INFO tells zeros. %s", notCompared)
		r.runID = ""
	default:
		r.fact("run id", "%s", r.runID)
	}
}

// notCompared says what follows if a node does not tell its run id.
const notCompared = "Two addresses of one server are not found"

// older reports whether the first two numbers of a version are less than those of least.
func older(version, least string) bool {
	numbers := func(text string) (major, minor int) {
		first, rest, _ := strings.Cut(text, ".")
		second, _, _ := strings.Cut(rest, ".")
		major, _ = strconv.Atoi(first)
		minor, _ = strconv.Atoi(second)
		return major, minor
	}
	major, minor := numbers(version)
	leastMajor, leastMinor := numbers(least)
	return major < leastMajor || major == leastMajor && minor < leastMinor
}

// addRole adds whether the node is a primary.
func (r *findings) addRole(i info) {
	switch i["role"] {
	case "master":
		r.fact("role", "primary, replicas: %s", i["connected_slaves"])
	case "slave":
		r.fact("role", "replica of %s:%s", i["master_host"], i["master_port"])
		r.warn("it is a replica: it refuses writes. Each node must be a primary")
		r.votes, r.replica = false, true
	default:
		r.fact("role", "%s", unknown("INFO", nil))
	}
}

// addMemory adds whether the node may evict locks.
func (r *findings) addMemory(i info) {
	policy := i["maxmemory_policy"]
	switch limit := i["maxmemory"]; {
	case policy == "":
		r.fact("memory", "%s", unknown("INFO", nil))
	case limit == "0":
		r.fact("memory", "no limit, maxmemory-policy %s", policy)
	default:
		r.fact("memory", "maxmemory %s, maxmemory-policy %s", limit, policy)
		if policy != "noeviction" {
			r.warn("maxmemory-policy %s: the node may evict locks when its memory is full, and an evicted key is a lost lock. Set noeviction", policy)
		}
	}
}

// addPersistence adds whether a restart may forget locks.
func (r *findings) addPersistence(node pool.Pool, i info) error {
	const remedy = "Set appendonly yes and appendfsync always, or give all programs on these nodes the restart guard (here: --guard)"
	switch i["aof_enabled"] {
	case "0":
		r.fact("persistence", "appendonly no")
		if r.guard == 0 {
			r.warn("a restart may forget locks, because appendonly is no (a snapshot lacks the last ones). %s", remedy)
		}
		return nil
	case "1":
	default:
		r.fact("persistence", "%s", unknown("INFO", nil))
		return nil
	}
	answer, refused, err := r.do(node, "config", "get", "appendfsync")
	if err != nil {
		return err
	}
	pair, _ := answer.([]any)
	if refused != nil || len(pair) != 2 {
		r.fact("persistence", "appendonly yes, appendfsync %s", unknown("CONFIG GET", refused))
		return nil
	}
	how := field(pair[1])
	r.fact("persistence", "appendonly yes, appendfsync %s", how)
	if how != "always" && r.guard == 0 {
		r.warn("appendfsync %s: a server that crashes can lose the last writes, and then forgets locks. %s", how, remedy)
	}
	return nil
}

// addUptime adds whether the restart guard ignores the node.
func (r *findings) addUptime(i info) {
	seconds, err := strconv.ParseInt(i["uptime_in_seconds"], 10, 32)
	if err != nil || seconds < 0 {
		r.fact("uptime", "%s", unknown("INFO", nil))
		r.cannotGuard("INFO has no uptime_in_seconds")
		return
	}
	uptime := time.Duration(seconds) * time.Second
	r.fact("uptime", "%v", uptime)
	if r.guard == 0 {
		return
	}
	more := drift(r.guard) + uptimeGranularity
	if left := r.guard + more - uptime; left > 0 {
		r.votes = false
		r.warn("its server started %v ago, and the restart guard (%v + %v) ignores it for another %v", uptime, r.guard, more, left)
	}
}

// cannotGuard says what it costs that the node does not tell its uptime, if there is a guard.
func (r *findings) cannotGuard(why string) {
	if r.guard > 0 {
		r.votes = false
		r.warn("%s. %s: %s", why, guardFeature, costOf(guardFeature))
	}
}

// A clockDiff says how far the clock of a node is ahead of this machine's: negative if it is behind.
type clockDiff struct{ ahead, uncertain time.Duration }

// surely returns the part of the difference that does not come from the measurement.
func (c clockDiff) surely() time.Duration {
	if c.ahead < 0 {
		return min(c.ahead+c.uncertain, 0)
	}
	return max(c.ahead-c.uncertain, 0)
}

// isTooFar reports whether a step that corrects the clock may end a lock early.
func (c clockDiff) isTooFar() bool {
	off := c.surely()
	return max(off, -off) >= clockLimit
}

// String returns the difference for people.
func (c clockDiff) String() string {
	how, by := "ahead of", c.ahead
	switch {
	case c.surely() == 0:
		return fmt.Sprintf("as this machine's (±%v)", fine(max(c.ahead, -c.ahead)+c.uncertain))
	case by < 0:
		how, by = "behind", -by
	}
	return fmt.Sprintf("%v (±%v) %s this machine's", fine(by), fine(c.uncertain), how)
}

// fine rounds a duration up to what a clock can tell.
func fine(d time.Duration) time.Duration {
	const unit = 10 * time.Microsecond
	return (d + unit - 1).Truncate(unit)
}

// askClock compares the node's clock with that of this machine. The node reads its own between the sending of TIME and the
// answer, so half of the time between is the uncertainty.
func (r *findings) askClock(node pool.Pool) error {
	for range samples {
		sent := time.Now()
		answer, refused, err := r.do(node, "time")
		half := time.Since(sent) / 2
		there, ok := parseTime(answer)
		switch {
		case err != nil:
			return err
		case refused != nil:
			r.fact("clock", "%s", unknown("TIME", refused))
			return nil
		case !ok:
			r.fact("clock", "%s", unknown("TIME", nil))
			return nil
		case r.clock == nil || half < r.clock.uncertain:
			r.clock = &clockDiff{there.Sub(sent.Add(half)), half}
		}
	}
	r.fact("clock", "%v", r.clock)
	if r.clock.isTooFar() {
		what := "A step that sets it back makes keys last longer after their holder has died"
		if r.clock.ahead < 0 {
			what = "A step that sets it forward ends locks early, and another process can have one that is held"
		}
		r.warn("its clock is %v. %s. Slew it, or keep the node down for the longest TTL while it is set", r.clock, what)
	}
	return nil
}

// parseTime reads the answer to TIME.
func parseTime(answer any) (time.Time, bool) {
	parts, _ := answer.([]any)
	if len(parts) != 2 {
		return time.Time{}, false
	}
	seconds, errSeconds := strconv.ParseInt(field(parts[0]), 10, 64)
	micros, errMicros := strconv.ParseInt(field(parts[1]), 10, 64)
	return time.UnixMicro(seconds*1e6 + micros), errSeconds == nil && errMicros == nil
}
