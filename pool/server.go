package pool

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is what is known of the server process that answered a request: its
// answer to INFO server. It is never changed, and the same pointer for all
// replies of one identification, so that comparing pointers tells at no cost
// that nothing has changed.
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
// Guard a vote by the age at the time when its request was sent. That is right
// also for a reply that was sent by a process that died, and delivered when its
// follower had been identified, whose Server it bears: the follower started after
// the request was sent, and its age is less than 1 s.
func (s *Server) Age(at time.Time) time.Duration { return s.Uptime + at.Sub(s.At) }

// maxUptime bounds what is believed. Sums of times stay far from overflowing.
const maxUptime = 100 * 365 * 24 * time.Hour

// infoArgs is the command that asks a server for what Server says.
var infoArgs = []any{"info", "server"}

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

// An identity is the outcome of one INFO: the process at the other end of all
// connections that a stream had opened before that INFO was sent.
//
// Each of those connections leads to that process or to one that was dead by
// then. A later process would have been alive when its connection was opened,
// before the INFO was sent, and an earlier one after that, when it answered;
// but a node is one process at a time. So a reply that is delivered while no
// further connection has been opened was not sent by a later process: it came on
// one of those connections, because a connection dies with its server.
type identity struct {
	covers uint64  // how many connections had been opened before the INFO was sent
	server *Server // nil: the server refused, or its answer was odd
}

// learn takes the answer to an INFO that was sent when covers connections had
// been opened. A refusal is an answer too, lest the server is asked again until
// there is a new connection; one that is only busy with a script is asked again,
// and so is one whose answer was lost.
//
// Of two answers that cover equally much the first stays. They are of one
// process, and its Server remains the same pointer.
func (d *dials) learn(covers uint64, text string, err error) {
	var refused redis.Error
	if err != nil && (!errors.As(err, &refused) || redis.HasErrorPrefix(err, "BUSY ")) {
		return
	}
	id := &identity{covers: covers}
	if err == nil {
		id.server = parseInfo(text, time.Now())
	}
	for {
		old := d.identity.Load()
		if old != nil && old.covers >= covers || d.identity.CompareAndSwap(old, id) {
			return
		}
	}
}

// server returns the process that sent the reply in hand, nil if it cannot be
// known, and whether asking would tell more.
//
// The reply was read before server is called, and its connection was counted
// before anything was read from it. So that connection is one of opened.
func (d *dials) server() (s *Server, ask bool) {
	opened, id := d.opened.Load(), d.identity.Load()
	if id == nil || id.covers < opened {
		return nil, true
	}
	return id.server, false
}

// shown returns s as the users of p see it: marked where p was told that its node
// is new and s is the first process that p meets. Only the collector of the
// stream in use calls it, and a stream starts after the last one has delivered
// its replies. So there is no lock.
func (p *streamPool) shown(s *Server) *Server {
	if !p.newNodes || s == nil {
		return s
	}
	if p.met != s {
		if p.first == "" {
			p.first = s.RunID
		}
		marked := *s
		marked.New = s.RunID == p.first
		p.met, p.marked = s, &marked
	}
	return p.marked
}

// server returns what is known of the process that answered a request of p. When
// that is nothing and answers are to be had, s asks, so that later replies tell;
// a reply that is an error is no reason to ask.
func (s *stream) server(p *streamPool, err error) *Server {
	server, ask := s.dials.server()
	if ask && err == nil {
		s.ask()
	}
	return p.shown(server)
}

// ask sends an INFO of the stream's own, unless one is under way. A node that
// owes as many replies as it may is asked at a later reply. Only collect calls
// it, so the stream does not stop meanwhile, and no limit of a user counts it.
func (s *stream) ask() {
	if !s.asking.CompareAndSwap(0, 1) {
		return
	}
	q := &question{s, s.dials.opened.Load()}
	if s.submit(&command{args: infoArgs, to: q}, true, maxOutstanding) != nil {
		s.asking.Store(0)
	}
}

// question receives the answer to an INFO of the stream's own.
type question struct {
	stream *stream
	covers uint64
}

func (q *question) Receive(_ int, r Reply) {
	text, _ := r.Value.(string)
	q.stream.dials.learn(q.covers, text, r.Err)
	q.stream.asking.Store(0)
}
