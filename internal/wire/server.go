package wire

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// A Server identifies the server process that answered a request. It comes from the answer to
// INFO server, asked on the same connection before any request. A connection leads to one process
// and ends with it, so this is the process that answered, even if it has died since.
//
// A Server is never modified. Each connection has a Server of its own, and a Pool gives all replies
// on one connection the same pointer. So equal pointers mean the same process on the same connection.
type Server struct {
	// RunID is random and new each time the server starts. Two nodes with equal RunIDs are one
	// server at two addresses. RunID is "" if it is not known which server this is: INFO has no
	// run_id, or one of zeros alone, or the pool has both pool.WithoutIdentity and pool.WithRestartGuard.
	RunID string

	// Uptime is how long the process had been running by its own account, in whole seconds. It
	// may be up to 1 s too long, because it is the difference of two clock readings truncated to
	// seconds. Setting the server's wall clock while it runs changes Uptime as well.
	Uptime time.Duration

	// At is when the answer to INFO had arrived, on the client's monotonic clock.
	At time.Time

	// New is set by a Pool with pool.WithNoLocksBefore(t) if the process certainly started before t. Such a process has
	// forgotten no lock: the program has declared that nobody held one on the node before t.
	New bool
}

// Age returns how long the process had been running at a given time, which may be before At:
// Uptime + at - At. It is never more than the true age plus 1 s. It may be less than the true age,
// by up to 1 s plus the time that the answer to INFO took. If the process started after the given
// time, Age returns less than 1 s.
//
// To guard a vote, use the age at the time when its Send was called. The request may wait for a
// connection, and a process that started after that time may answer it. Then its age is less than 1
// s.
func (s *Server) Age(at time.Time) time.Duration { return s.Uptime + at.Sub(s.At) }

// startedBy returns the latest time at which the process may have started, by the client's clock.
func (s *Server) startedBy() time.Time { return s.At.Add(time.Second - s.Uptime) }

// questions are what a stream asks a node on each new connection: who it is, that it load every script, and that it notify
// of maintenance. All go in one write.
type questions struct {
	heed     heed
	commands [][]any
	scripts  int      // the last of the commands load scripts
	address  string   // of the node
	known    *loading // the scripts need not be loaded if the server is the one of this; may be nil
	mode     string   // of the node, as its answer to INFO tells it
}

// newQuestions returns what a connection asks that heeds h: INFO if it identifies the server, otherwise a PING, which is
// answered with QUEUED, too, if OnConnect has left a MULTI open; and the scripts if it loads them.
func newQuestions(h heed, identifies, loads bool) *questions {
	asks := &questions{heed: h, commands: [][]any{{"info", "server"}}}
	if !identifies {
		asks.commands[0] = []any{"ping"}
	}
	if h.wanted {
		asks.commands = append(asks.commands, h.args())
	}
	if !loads {
		return asks
	}
	for _, script := range knownScripts() {
		asks.commands = append(asks.commands, []any{"script", "load", script.source})
		asks.scripts++
	}
	return asks
}

// identifies reports whether the node is asked which server it is.
func (q *questions) identifies() bool { return q.commands[0][0] == "info" }

// modeOf returns the mode of the node that has answered, "" if it is not known.
func (q *questions) modeOf(opened *ownConn) string { return cmp.Or(opened.mode, q.mode) }

// encoded returns the questions as they are sent.
func (q *questions) encoded() (b []byte) {
	for _, args := range q.commands {
		b, _ = AppendCommand(b, args) // strings
	}
	return b
}

// ask sends the questions through go-redis, and returns the answers.
func (q *questions) ask(ctx context.Context, cn *redis.Conn) (answers []any, at time.Time, err error) {
	cmds, err := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, args := range q.commands {
			p.Do(ctx, args...)
		}
		return nil
	})
	at = time.Now()
	if err != nil && !isAnswer(err) {
		return nil, at, err
	}
	for _, cmd := range cmds {
		answer, err := cmd.(*redis.Cmd).Result()
		switch {
		case err == nil:
			answers = append(answers, answer)
		case isAnswer(err):
			answers = append(answers, err)
		default:
			return nil, at, err
		}
	}
	return answers, at, nil
}

// read returns the server that has answered at that time.
//
// A node may refuse INFO or SCRIPT LOAD for lack of permission. Without INFO the Server is nil.
// Without its scripts the node answers NOSCRIPT later, and the caller then sends the source. Any
// other failure fails the connection. So does BUSY: a node that is busy with a script refuses nearly
// every command, so the next connection asks again.
func (q *questions) read(answers []any, at time.Time) (*Server, error) {
	for i, answer := range answers {
		err, refused := answer.(error)
		if refused && redis.HasErrorPrefix(err, "BUSY ") {
			return nil, err
		}
		// If the node has sent one reply too many, replies no longer match their commands.
		if sha, _ := answer.(string); !refused && i >= len(answers)-q.scripts && len(sha) != shaLength {
			return nil, errUnsolicited
		}
	}
	if err, refused := answers[min(1, len(answers)-1)].(error); refused && q.heed.wanted && q.heed.must {
		return nil, fmt.Errorf("the node does not send notifications of maintenance, which the client demands: %w", err)
	}
	text, _ := answers[0].(string)
	if text == "QUEUED" { // OnConnect has left a MULTI open
		return nil, errUnsolicited
	}
	if !q.identifies() {
		return nil, nil
	}
	q.mode = field(text, "redis_mode")
	return parseInfo(text, at), nil
}

// maxRunID bounds a plausible run id: Redis and Valkey have 40 digits.
const maxRunID = 128

// askServer asks the node the questions of q, unless it has already answered them behind the greeting.
func askServer(ctx context.Context, cn *redis.Conn, q *questions, opened *ownConn) (*Server, error) {
	if opened.ahead != nil {
		answers, at, err := opened.ahead(ctx)
		if err != nil {
			return nil, err
		}
		if answers != nil {
			return q.readAndNote(answers, at)
		}
	}
	answers, at, err := q.ask(ctx, cn)
	if err != nil {
		return nil, err
	}
	return q.readAndNote(answers, at)
}

func (q *questions) readAndNote(answers []any, at time.Time) (*Server, error) {
	server, err := q.read(answers, at)
	if err == nil {
		q.note(q.address, server, answers)
	}
	return server, err
}

// maxUptime bounds a plausible uptime, and keeps sums of times from overflowing.
const maxUptime = 100 * 365 * 24 * time.Hour

// parseInfo parses an answer to INFO server, which consists of lines name:value. It returns nil if uptime_in_seconds is
// missing or invalid. Some servers that imitate Redis have no run_id, or one of zeros. A run_id is printed, so it has at
// most maxRunID bytes, which a terminal does not obey.
func parseInfo(text string, at time.Time) *Server {
	s := &Server{RunID: field(text, "run_id"), At: at}
	seconds, err := strconv.ParseInt(field(text, "uptime_in_seconds"), 10, 64)
	if err != nil || seconds < 0 || seconds > int64(maxUptime/time.Second) {
		return nil
	}
	if strings.Trim(s.RunID, "0") == "" || foreign.Text(s.RunID, maxRunID) != s.RunID {
		s.RunID = ""
	}
	s.Uptime = time.Duration(seconds) * time.Second
	return s
}

// field returns the value of the first line with that name, "" if there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if n, value, found := strings.Cut(line, ":"); found && n == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A serverView decides what the users of one pool see of the servers that answer. It needs no
// mutex: only the goroutine that delivers the replies of the current stream calls shown, and a
// stream starts only after the previous one has delivered its replies.
type serverView struct {
	anonymous     bool      // see pool.WithoutIdentity
	guarded       bool      // see pool.WithRestartGuard
	noLocksBefore time.Time // see pool.WithNoLocksBefore

	met   *Server // the last one that was shown
	shows *Server // what is shown of met: itself, or a copy
}

// shown returns what users see of s. pool.WithoutIdentity hides it, except how long a guard must wait for it.
// pool.WithNoLocksBefore marks a process that started before that time.
func (v *serverView) shown(s *Server) *Server {
	switch {
	case v.anonymous && !v.guarded:
		return nil
	case s == nil || !v.anonymous && v.noLocksBefore.IsZero():
		return s
	}
	if v.met != s {
		v.met, v.shows = s, s
		if isNew := s.startedBy().Before(v.noLocksBefore); isNew || v.anonymous {
			altered := *s
			altered.New = isNew
			if v.anonymous {
				altered.RunID = ""
			}
			v.shows = &altered
		}
	}
	return v.shows
}
