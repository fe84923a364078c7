package pool

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is what is known of the server process that answered a request: its
// answer to INFO server on the connection that the reply came on, before any
// request. A connection leads to one process and ends with it, so that this is the
// process that answered, also when it has died since.
//
// A Server is never changed, and the same pointer for all replies on one
// connection, so that comparing pointers tells at no cost that nothing has changed.
type Server struct {
	// RunID is random and new each time the server starts. Two nodes with equal
	// ones are one server at two addresses.
	RunID string

	// Uptime is how long the process had been running, as it said, in whole
	// seconds: up to 1 s more than the truth, since it is the difference of two
	// clocks that are cut to seconds. A node whose wall clock is set while it
	// runs tells that as uptime.
	Uptime time.Duration

	// At is when that answer had come, on the client's monotonic clock.
	At time.Time

	// New says that the process is the first that a Pool with WithNewNodes has
	// met: nobody has held a lock on the node before it started.
	New bool
}

// Age returns how long the process had been running at the time at, which may lie
// before At: Uptime + at - At. It is never more than the truth plus 1 s, and less
// by the time that the answer to INFO took; for a process that started after at
// it is less than 1 s.
//
// Guard a vote by the age at the time when its request was sent. A request that
// waited for a connection may be answered by a process that started after it was
// sent; that one's age is less than 1 s.
func (s *Server) Age(at time.Time) time.Duration { return s.Uptime + at.Sub(s.At) }

// askServer asks the node who it is and gives it every script, in one round trip. A node
// may refuse either, for want of permission: then its server is unknown, which is nil, and
// the node answers NOSCRIPT later and is sent the source. Any other failure is the
// connection's. A node that is busy with a script refuses nearly everything: it is tried
// again later.
func askServer(ctx context.Context, cn *redis.Conn) (*Server, error) {
	var info *redis.Cmd
	cmds, err := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		info = p.Do(ctx, "info", "server")
		for _, script := range knownScripts() {
			p.ScriptLoad(ctx, script.source)
		}
		return nil
	})
	at := time.Now()
	if err != nil && !isAnswer(err) {
		return nil, err
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && (!isAnswer(err) || redis.HasErrorPrefix(err, "BUSY ")) {
			return nil, err
		}
		// A node that has sent a reply too many answers the next command with the last.
		if loaded, is := cmd.(*redis.StringCmd); is && loaded.Err() == nil && len(loaded.Val()) != shaLength {
			return nil, errUnasked
		}
	}
	text, _ := info.Val().(string)
	if text == "QUEUED" { // OnConnect has left a MULTI open
		return nil, errUnasked
	}
	return parseInfo(text, at), nil
}

// maxUptime bounds what is believed. Sums of times stay far from overflowing.
const maxUptime = 100 * 365 * 24 * time.Hour

// parseInfo reads an answer to INFO server: lines of name:value. It returns nil
// when one of the two fields is missing or odd.
func parseInfo(text string, at time.Time) *Server {
	s := &Server{RunID: field(text, "run_id"), At: at}
	seconds, err := strconv.ParseInt(field(text, "uptime_in_seconds"), 10, 64)
	if s.RunID == "" || err != nil || seconds < 0 || seconds > int64(maxUptime/time.Second) {
		return nil
	}
	s.Uptime = time.Duration(seconds) * time.Second
	return s
}

// field returns the value of the first line of that name, "" if there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if n, value, found := strings.Cut(line, ":"); found && n == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A serverView is how the users of one pool see the servers that answer. Only the goroutine
// that delivers the replies of the stream in use calls shown, and a stream starts after the
// last one has delivered its replies. So there is no lock.
type serverView struct {
	anonymous bool // see WithoutIdentity
	newNodes  bool // see WithNewNodes

	first  string  // the RunID of the first process met
	met    *Server // what marked is a copy of
	marked *Server
}

// shown returns s as the users see it: not at all WithoutIdentity, and WithNewNodes marked
// where s is the first process that the pool meets.
func (v *serverView) shown(s *Server) *Server {
	switch {
	case v.anonymous:
		return nil
	case !v.newNodes || s == nil:
		return s
	}
	if v.met != s {
		if v.first == "" {
			v.first = s.RunID
		}
		marked := *s
		marked.New = s.RunID == v.first
		v.met, v.marked = s, &marked
	}
	return v.marked
}
