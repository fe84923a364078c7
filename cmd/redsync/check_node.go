package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	for _, p := range probes {
		if p.asks == "INFO" && r.info == nil && p.name != "server" { // INFO is refused, which the line of the server says
			continue
		}
		told, refused, err := p.says(r, node)
		if err != nil {
			r.fails(err)
			return
		}
		if told == "" {
			told = unknown(p.asks, refused)
		}
		r.fact(p.name, "%s", told)
	}
	if err := r.askPermissions(node); err != nil {
		r.fails(err)
	}
}

// A probe finds one fact about a node: a line of the report, and the warnings that belong to it.
type probe struct {
	name string
	asks string // the command, for a line that says that the fact is not known
	says func(*findings, pool.Pool) (told string, refused, err error)
}

// probes are the facts, in the order of the lines.
var probes = []probe{
	{"latency", "PING", (*findings).latency},
	{"server", "INFO", (*findings).server},
	{"run id", "INFO", byInfo((*findings).identity)},
	{"role", "INFO", byInfo((*findings).role)},
	{"memory", "INFO", byInfo((*findings).memory)},
	{"persistence", "INFO", (*findings).persistence},
	{"uptime", "INFO", byInfo((*findings).uptime)},
	{"clock", "TIME", (*findings).time},
}

// byInfo returns what a probe says that asks no more than INFO.
func byInfo(says func(*findings) string) func(*findings, pool.Pool) (string, error, error) {
	return func(r *findings, _ pool.Pool) (string, error, error) { return says(r), nil, nil }
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

func (r *findings) latency(node pool.Pool) (told string, refused, err error) {
	least := time.Duration(math.MaxInt64)
	for range samples {
		start := time.Now()
		if _, refused, err = r.do(node, "ping"); err != nil || refused != nil {
			return "", refused, err
		}
		least = min(least, time.Since(start))
	}
	return least.Round(time.Microsecond).String(), nil, nil
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

// The oldest versions that are supported.
const (
	leastRedis  = "6.2"
	leastValkey = "7.2"
)

// server asks for INFO, and says the version.
func (r *findings) server(node pool.Pool) (told string, refused, err error) {
	answer, refused, err := r.do(node, "info")
	switch {
	case err != nil:
		return "", nil, err
	case refused != nil:
		r.cannotGuard("INFO is refused")
		return "", refused, nil
	}
	text, _ := answer.(string)
	r.info = parseInfo(text)
	redis := r.info["redis_version"]
	product, version, least := "Redis", redis, leastRedis
	for _, p := range products {
		if v := r.info[versionOf(p)]; v != "" {
			product, version = p, v
			break
		}
	}
	switch {
	case version == "":
	case product == "Redis", product == "Valkey", redis == "":
		told = fmt.Sprintf("%s %s", product, version)
	default:
		told = fmt.Sprintf("%s %s (as Redis %s)", product, version, redis)
	}
	if product == "Valkey" {
		redis, least = version, leastValkey
	} else {
		product = "Redis"
	}
	if redis != "" && older(redis, least) {
		r.warn("%s %s is too old: Redis %s, Valkey %s or later is needed", product, redis, leastRedis, leastValkey)
	}
	return told, nil, nil
}

func (r *findings) identity() string {
	switch id := r.info["run_id"]; {
	case id == "":
		return unknown("INFO", nil) + ". " + notCompared
	case strings.Trim(id, "0") == "":
		return "not known: INFO tells zeros. " + notCompared
	default:
		r.runID = id
		return id
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

func (r *findings) role() string {
	switch r.info["role"] {
	case "master":
		return "primary, replicas: " + r.info["connected_slaves"]
	case "slave":
		r.warn("it is a replica: it refuses writes. Each node must be a primary")
		r.votes, r.replica = false, true
		return fmt.Sprintf("replica of %s:%s", r.info["master_host"], r.info["master_port"])
	}
	return ""
}

// memory says whether the node may evict locks.
func (r *findings) memory() string {
	policy := r.info["maxmemory_policy"]
	switch limit := r.info["maxmemory"]; {
	case policy == "":
		return ""
	case limit == "0":
		return "no limit, maxmemory-policy " + policy
	default:
		if policy != "noeviction" {
			r.warn("maxmemory-policy %s: the node may evict locks when its memory is full, and an evicted key is a lost lock. Set noeviction", policy)
		}
		return fmt.Sprintf("maxmemory %s, maxmemory-policy %s", limit, policy)
	}
}

// persistence says whether a restart may forget locks.
func (r *findings) persistence(node pool.Pool) (told string, refused, err error) {
	const remedy = "Set appendonly yes and appendfsync always, or give all programs on these nodes the restart guard (here: --guard)"
	switch r.info["aof_enabled"] {
	case "0":
		if r.guard == 0 {
			r.warn("a restart may forget locks, because appendonly is no (a snapshot lacks the last ones). %s", remedy)
		}
		return "appendonly no", nil, nil
	case "1":
	default:
		return "", nil, nil
	}
	answer, refused, err := r.do(node, "config", "get", "appendfsync")
	pair, _ := answer.([]any)
	switch {
	case err != nil:
		return "", nil, err
	case refused != nil || len(pair) != 2:
		return "appendonly yes, appendfsync " + unknown("CONFIG GET", refused), nil, nil
	}
	how := field(pair[1])
	if how != "always" && r.guard == 0 {
		r.warn("appendfsync %s: a server that crashes can lose the last writes, and then forgets locks. %s", how, remedy)
	}
	return "appendonly yes, appendfsync " + how, nil, nil
}

// uptime says whether the restart guard ignores the node.
func (r *findings) uptime() string {
	seconds, err := strconv.ParseInt(r.info["uptime_in_seconds"], 10, 32)
	if err != nil || seconds < 0 {
		r.cannotGuard("INFO has no uptime_in_seconds")
		return ""
	}
	uptime := time.Duration(seconds) * time.Second
	more := drift(r.guard) + uptimeGranularity
	if left := r.guard + more - uptime; r.guard > 0 && left > 0 {
		r.votes = false
		r.warn("its server started %v ago, and the restart guard (%v + %v) ignores it for another %v", uptime, r.guard, more, left)
	}
	return uptime.String()
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

// time compares the node's clock with that of this machine. The node reads its own between the sending of TIME and the
// answer, so half of the time between is the uncertainty.
func (r *findings) time(node pool.Pool) (told string, refused, err error) {
	for range samples {
		sent := time.Now()
		answer, refused, err := r.do(node, "time")
		half := time.Since(sent) / 2
		there, ok := parseTime(answer)
		if err != nil || refused != nil || !ok {
			return "", refused, err
		}
		if r.clock == nil || half < r.clock.uncertain {
			r.clock = &clockDiff{there.Sub(sent.Add(half)), half}
		}
	}
	if r.clock.isTooFar() {
		what := "A step that sets it back makes keys last longer after their holder has died"
		if r.clock.ahead < 0 {
			what = "A step that sets it forward ends locks early, and another process can have one that is held"
		}
		r.warn("its clock is %v. %s. Slew it, or keep the node down for the longest TTL while it is set", r.clock, what)
	}
	return r.clock.String(), nil, nil
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
