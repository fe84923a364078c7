package wire

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// A Server identifies the server process that answered a request. It comes from INFO server, asked on the same
// connection before any request. A Server is never modified. Equal pointers mean the same process on the same
// connection.
type Server struct {
	// RunID is random and new each time the server starts. Nodes with equal RunIDs are one server. RunID is "" if INFO has
	// no run_id, or one of zeros, and with both pool.WithoutIdentity and pool.WithRestartGuard.
	RunID string

	// Uptime is how long the process had been running by its own account, in whole seconds. As a difference of truncated
	// times, it may be up to 1 s too long. Setting the server's clock changes it.
	Uptime time.Duration

	// At is when the answer to INFO had arrived, on the client's monotonic clock.
	At time.Time

	// New says that the process certainly started before pool.WithNoLocksBefore's time, and so has forgotten no lock.
	New bool
}

// Age returns how long the process had been running at a given time: Uptime + at - At. It is at most the true age plus
// 1 s. It may be less, by up to 1 s plus the time that INFO took. If the process started after the given time, it is
// less than 1 s.
//
// To guard a vote, use the age at the time of Send: a process that started after that may answer.
func (s *Server) Age(at time.Time) time.Duration { return s.Uptime + at.Sub(s.At) }

// StartedBy returns when the process had certainly started, by the client's clock.
func (s *Server) StartedBy() time.Time { return s.At.Add(time.Second - s.Uptime) }

// questions are what a stream asks on each new connection, in one write: who the node is, and that it load scripts and
// notify of maintenance.
type questions struct {
	heed     heed
	commands [][]any
	scripts  int      // the last of the commands load scripts
	address  string   // of the node
	known    *loading // the scripts need not be loaded if the server is this one
	mode     string   // of the node, as its answer to INFO tells it
	natives  Native   // that its version has
}

// newQuestions begins with INFO if the connection identifies the server, and otherwise with a PING: that, too, is
// answered with QUEUED if OnConnect has left a MULTI open.
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

func (q *questions) identifies() bool { return q.commands[0][0] == "info" }

func (q *questions) encoded() []byte {
	size := 0
	for _, args := range q.commands {
		last, _ := args[len(args)-1].(string) // a script, or short
		size += len(last) + 64
	}
	b := make([]byte, 0, size)
	for _, args := range q.commands {
		b, _ = AppendCommand(b, args)
	}
	return b
}

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
// If the node refuses INFO, the Server is nil; if SCRIPT LOAD, it answers NOSCRIPT later. Any other failure, and BUSY,
// fails the connection, so that the next one asks again.
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
	q.mode, q.natives = field(text, "redis_mode"), nativesIn(text)
	return parseInfo(text, at), nil
}

// maxRunID bounds a run id: Redis and Valkey have 40 digits.
const maxRunID = 128

// askServer asks q, unless the node has already answered behind the greeting.
func askServer(ctx context.Context, cn *redis.Conn, q *questions, opened *ownConn) (*Server, error) {
	var answers []any
	var at time.Time
	var err error
	if opened.ahead != nil {
		answers, at, err = opened.ahead(ctx)
	}
	if answers == nil && err == nil {
		answers, at, err = q.ask(ctx, cn)
	}
	if err != nil {
		return nil, err
	}
	server, err := q.read(answers, at)
	if err == nil {
		q.note(server, answers)
	}
	return server, err
}

// maxUptime keeps sums of times from overflowing.
const maxUptime = 100 * 365 * 24 * time.Hour

// parseInfo returns nil without a valid uptime_in_seconds. A run_id is printed, so a terminal must not obey it.
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

func field(text, name string) string {
	for line := range strings.Lines(text) {
		if n, value, found := strings.Cut(line, ":"); found && n == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A serverView decides what the users of one pool see of servers. It needs no mutex: only the goroutine that delivers
// replies calls shown, and a stream starts after the previous one has delivered all.
type serverView struct {
	cfg *Config // of the pool

	met   *Server
	shows *Server // itself, or an altered copy
}

func (v *serverView) shown(s *Server) *Server {
	cfg := v.cfg
	switch {
	case cfg.Anonymous && cfg.Guard == 0:
		return nil
	case s == nil || !cfg.Anonymous && cfg.NoLocksBefore.IsZero():
		return s
	}
	if v.met != s {
		v.met, v.shows = s, s
		if isNew := s.StartedBy().Before(cfg.NoLocksBefore); isNew || cfg.Anonymous {
			altered := *s
			altered.New = isNew
			if cfg.Anonymous {
				altered.RunID = ""
			}
			v.shows = &altered
		}
	}
	return v.shows
}
