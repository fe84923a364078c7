package wire

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// known sends one request and returns the Server of the reply. It fails if there is none.
func known(tb testing.TB, p Pool) *Server {
	tb.Helper()
	s := answer(tb, p, "ping").Server
	require.NotNil(tb, s, "the reply has no Server")
	return s
}

// restart kills the node, starts it again, and waits until p has a connection to it.
func (s *scene) restart(p Pool) {
	s.Helper()
	s.Kill()
	s.Restart(true)
	for ask(s, p, "ping").Err != nil { // the first request may meet the end of the old connection
		time.Sleep(time.Millisecond)
	}
}

func TestServerIsKnownAtTheFirstReply(t *testing.T) {
	bubble(t, func(s *scene) {
		time.Sleep(90*time.Second + 300*time.Millisecond)
		p := s.pool()
		found := known(s, p)
		text := answer(s, p, "info", "server").Value.(string)
		require.Equal(s, Server{RunID: field(text, "run_id"), Uptime: 90 * time.Second, At: time.Now()}, *found)
		for range 100 {
			require.Same(s, found, known(s, p))
			require.Same(s, found, ask(s, p, "no such command").Server, "with an error that the node answered")
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(s, 2, s.Commands("info"), "one INFO of the pool, and one of this test")
	})
}

// The server reports the difference of two clock readings in whole seconds, so the age may be off
// by up to 1 s in either direction.
func TestServerAge(t *testing.T) {
	bubble(t, func(s *scene) {
		require.Zero(s, time.Now().Nanosecond(), "a bubble begins at a whole second")
		start := time.Now()
		time.Sleep(10*time.Second + 700*time.Millisecond)
		p := s.pool()
		found := known(s, p)
		require.Equal(s, 10*time.Second, found.Age(time.Now()), "the true age is 10.7 s")
		require.Equal(s, -700*time.Millisecond, found.Age(start))
		require.Equal(s, -10*time.Second, found.Age(start.Add(-9300*time.Millisecond)), "before the process started")
		time.Sleep(time.Hour)
		require.Equal(s, time.Hour+10*time.Second, found.Age(time.Now()))

		time.Sleep(200 * time.Millisecond) // to .9 of a second
		up := time.Now()
		s.Kill()
		s.Restart(true)
		time.Sleep(1200 * time.Millisecond)
		found = known(s, p) // on a new connection: the stream had ended
		require.Equal(s, 2*time.Second, found.Age(time.Now()), "the true age is 1.2 s")
		require.Equal(s, 800*time.Millisecond, found.Age(up))
	})
}

// A slow answer to INFO makes the process seem younger than it is, never older. The guard relies on
// that: a process that seems too old would count too early.
func TestServerAgeWithSlowAnswer(t *testing.T) {
	bubble(t, func(s *scene) {
		time.Sleep(10 * time.Second)
		s.On("script", 1, embedded.Fault{Delay: 2 * time.Second}) // behind INFO, in the same round trip
		p := s.pool()
		found := known(s, p)
		require.Equal(s, 10*time.Second, found.Uptime)
		require.Equal(s, 10*time.Second, found.Age(time.Now()), "the true age is 12 s")
	})
}

const noInfo = "NOPERM this user has no permissions to run the 'info' command"

func TestServerThatRefusesInfoIsNotAskedAgain(t *testing.T) {
	bubble(t, func(s *scene) {
		s.refuses("info", 1000, noInfo)
		p := s.pool(Config{NoLocksBefore: time.Now().Add(time.Minute)})
		for connections := 1; connections <= 3; connections++ {
			for range 50 {
				require.Nil(s, answer(s, p, "ping").Server)
			}
			require.Equal(s, connections, s.Commands("info"))
			s.restart(p)
		}
		require.Equal(s, 4, s.Commands("info"))
		require.Nil(s, answer(s, p, append(testScript.Append(nil, 1), "k")...).Value, "scripts are loaded even so")
	})
}

// A node that runs a long script refuses nearly every command, INFO and SCRIPT LOAD included. The pool
// must not use such a connection, because it would never learn the Server on it, or load the scripts.
func TestServerThatWasBusyIsAskedAgain(t *testing.T) {
	for command, perConnection := range map[string]int{"info": 1, "script": len(knownScripts())} {
		bubble(t, func(s *scene) {
			s.refuses(command, redialTries*perConnection, "BUSY Redis is busy running a script.")
			p := s.pool()
			for range 2 * redialTries { // the second half fails without another attempt to connect
				require.ErrorContains(s, unsent(s, p), "BUSY")
			}
			require.Equal(s, redialTries, s.Commands("info"))
			time.Sleep(redialPause)
			found := known(s, p)
			require.Same(s, found, known(s, p))
			require.Equal(s, redialTries+1, s.Commands("info"))
			require.Zero(s, s.Commands("get"))
		})
	}
}

// The node refuses INFO and then loses each connection at SCRIPT LOAD, in the same round trip. The refusal must not hide
// the failure that follows it. The next connection is opened at once, and loads no script.
func TestStreamLostBehindRefusedInfoIsNotUsed(t *testing.T) {
	bubble(t, func(s *scene) {
		s.refuses("info", 1, noInfo)
		s.Lacks(embedded.Closing, "script")
		p := s.pool()
		known(s, p)
		require.Equal(s, 2, s.opened())
		time.Sleep(time.Second) // the node reads on behind the end of the connection
		loads := s.Commands("script")
		s.Lacks(embedded.Has, "script")
		for range 3 {
			require.Equal(s, loads, s.Commands("script"), "no connection loads scripts for a while")
			time.Sleep(cutAgain / 3)
			s.restart(p)
		}
		require.Greater(s, s.Commands("script"), loads)
	})
}

// INFO is sent only if a pool of the client wants to know the server. A pool that comes later gets a connection that knows.
func TestInfoIsNotSentIfNobodyAsks(t *testing.T) {
	bubble(t, func(s *scene) {
		client := s.client()
		anonymous := New(client, Config{Anonymous: true})
		require.Nil(s, answer(s, anonymous, "ping").Server)
		require.Zero(s, s.Commands("info"))
		p := New(client, Config{})
		known(s, p)
		require.Nil(s, answer(s, anonymous, "ping").Server)
		require.Equal(s, 2, s.opened())
	})
	bubble(t, func(s *scene) {
		answer(s, New(s.client(), Config{Anonymous: true, ViaClient: true}), "ping")
		answer(s, New(s.client(), Config{ViaClient: true}), "echo", "not yet")
		require.Zero(s, s.Commands("info"))
	})
	bubble(t, func(s *scene) { // and comes when the connection has asked its questions, and is not in use yet
		var client *redis.Client
		later := make(replies, 1)
		client = s.client(func(o *redis.Options) { o.Addr = "node" }, dialing(nil, func(conn net.Conn) net.Conn {
			return reaching{conn, func() {
				if s.Commands("info") == 0 {
					send(s, New(client, Config{}), later, "ping")
				}
			}}
		}))
		answer(s, New(client, Config{Anonymous: true}), "ping")
		require.NotNil(s, later.wait(s).Server)
		require.Equal(s, 2, s.opened())
	})
}

// A reaching connection calls a function when the pool notes which address it has reached.
type reaching struct {
	net.Conn
	reached func()
}

func (r reaching) RemoteAddr() net.Addr {
	r.reached()
	return r.Conn.RemoteAddr()
}

// A learning connection makes another script as soon as the questions to the node have been written.
type learning struct{ net.Conn }

func (l learning) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if bytes.Contains(b, []byte("script")) {
		NewScript(func() string { return "return 1" })
	}
	return n, err
}

func TestServerIsKnownAlthoughAScriptIsMadeWhileTheNodeIsAsked(t *testing.T) {
	bubble(t, func(s *scene) {
		before := len(knownScripts())
		known(s, s.with(dialing(nil, func(conn net.Conn) net.Conn { return learning{conn} })))
		require.Len(s, knownScripts(), before+1, "on one connection")
	})
}

// In a bubble time.Now has no monotonic clock reading.
func TestNoLocksBeforeMarksServersThatStartedBefore(t *testing.T) {
	bubble(t, func(s *scene) {
		start := time.Now()
		client := s.client()
		plain, marking := New(client, Config{}), New(client, Config{NoLocksBefore: start.Add(time.Minute)})
		shared, marked := known(s, plain), known(s, marking)
		require.False(s, shared.New)
		require.True(s, marked.New)
		want := *shared
		want.New = true
		require.Equal(s, want, *marked, "only New differs")
		require.Same(s, shared, known(s, plain), "the shared Server is not changed")
		require.Same(s, marked, known(s, marking))

		time.Sleep(time.Hour) // the stream ends
		require.True(s, known(s, marking).New, "the same process, identified again")
		require.NotEqual(s, marked.At, known(s, marking).At)
		require.True(s, known(s, marking.(*streamPool).Sibling()).New)

		s.restart(marking)
		require.False(s, known(s, marking).New)
		require.False(s, known(s, New(client, Config{NoLocksBefore: start.Add(time.Minute)})).New, "a process that starts now")
		require.False(s, known(s, New(client, Config{NoLocksBefore: time.Time{}})).New)
		require.True(s, known(s, New(client, Config{NoLocksBefore: time.Now().Add(2 * time.Second)})).New)
		require.Zero(s, marking.(interface{ RestartGuard() time.Duration }).RestartGuard())
	})
}

// A server tells its uptime in whole seconds. One that started at the given time or later is never New. One that started
// 2 s earlier always is.
func TestNoLocksBeforeNeverMarksAServerThatStartedLater(t *testing.T) {
	const step = 250 * time.Millisecond
	bubble(t, func(s *scene) {
		for begin := range 4 {
			for age := range 12 {
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + time.Duration(begin)*step)))
				s.Kill()
				s.Restart(true)
				started := time.Now()
				time.Sleep(time.Duration(age) * step)
				client := s.client()
				require.False(s, known(s, New(client, Config{NoLocksBefore: started})).New, "%d %d", begin, age)
				require.True(s, known(s, New(client, Config{NoLocksBefore: started.Add(2 * time.Second)})).New, "%d %d", begin, age)
			}
		}
	})
}

func TestRestartGuard(t *testing.T) {
	type guarded interface {
		Err() error
		RestartGuard() time.Duration
	}
	clients := hookable(t)
	plain, ring, cluster := clients["*redis.Client"], clients["*redis.Ring"], clients["*redis.ClusterClient"]
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = failover.Close() })
	for name, c := range map[string]struct {
		client redis.UniversalClient
		asked  time.Duration
		guard  time.Duration
		err    string
	}{
		"a client": {plain, time.Minute, time.Minute, ""},
		"Sentinel": {failover, 1, 1, ""},
		"ring":     {ring, time.Minute, time.Minute, "pool: WithRestartGuard(1m0s) needs a *redis.Client: a *redis.Ring does not tell when a connection is opened"},
		"cluster":  {cluster, time.Minute, time.Minute, "needs a *redis.Client: a *redis.ClusterClient does"},
		"other":    {notAClient{plain}, time.Minute, time.Minute, "needs a *redis.Client: a wire.notAClient does"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(c.client, Config{NoLocksBefore: time.Unix(1, 0), Guard: c.asked})
			require.Equal(t, c.guard, p.(guarded).RestartGuard())
			if c.err == "" {
				require.NoError(t, p.(guarded).Err())
				return
			}
			require.ErrorContains(t, p.(guarded).Err(), c.err)
			require.ErrorContains(t, p.Send(request(make(replies, 1), "ping")), c.err)
		})
	}
}

// A reply is delivered after its process has died and the next one has started. The pool must still
// attribute it to the old process.
func TestServerOfALateReplyIsTheOneThatAnswered(t *testing.T) {
	bubble(t, func(s *scene) {
		p := s.pool()
		old := known(s, p)
		hold, next := make(chan struct{}), make(replies, 3)
		send(s, p, holding(hold), "ping")
		late := sent(s, p, "info", "server")
		synctest.Wait() // both requests are answered; the Receiver of the first one blocks
		s.Kill()
		s.Restart(true)
		for range 3 { // sent on the old connection: nothing has read its end yet
			send(s, p, next, "ping")
			time.Sleep(time.Second)
		}
		close(hold)
		r := late.wait(s)
		require.Equal(s, old.RunID, field(r.Value.(string), "run_id"), "the old process answered")
		require.Same(s, old, r.Server)
		require.NotEqual(s, old.RunID, known(s, p).RunID)
	})
}

// A request waits for a connection while the node restarts. The process that answers it started
// after the request was sent, so its age at that time must be less than 1 s.
func TestServerMayHaveStartedAfterTheRequest(t *testing.T) {
	bubble(t, func(s *scene) {
		time.Sleep(time.Hour)
		dialed := make(chan struct{})
		in, start := sent(s, s.with(dialing(func() { <-dialed }, nil)), "ping"), time.Now()
		time.Sleep(3 * time.Second)
		s.Kill()
		s.Restart(true)
		close(dialed)
		require.Less(s, in.wait(s).Server.Age(start), time.Second)
	})
}

// holding is a Receiver that blocks until the channel is closed.
type holding chan struct{}

func (h holding) Receive(int, Reply) { <-h }

func TestParseInfo(t *testing.T) {
	at := time.Now()
	for text, want := range map[string]*Server{
		"# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:17\r\nuptime_in_days:0\r\n": {RunID: "abc", Uptime: 17 * time.Second, At: at},
		"run_id:abc\nuptime_in_seconds:0":                       {RunID: "abc", At: at},
		"uptime_in_seconds:3153600000\nrun_id: abc \n":          {RunID: "abc", Uptime: maxUptime, At: at},
		"run_id:a\nuptime_in_seconds:1\nrun_id:b\n":             {RunID: "a", Uptime: time.Second, At: at},
		"run_id:a:b\nuptime_in_seconds:1\n":                     {RunID: "a:b", Uptime: time.Second, At: at},
		"":                                                      nil,
		"run_id:abc":                                            nil,
		"uptime_in_seconds:1":                                   {Uptime: time.Second, At: at},
		"run_id:\r\nuptime_in_seconds:1\r\n":                    {Uptime: time.Second, At: at},
		"run_id:0000\r\nuptime_in_seconds:1\r\n":                {Uptime: time.Second, At: at},
		"run_id:abc\r\nuptime_in_seconds:\r\n":                  nil,
		"run_id:abc\r\nuptime_in_seconds:-1\r\n":                nil,
		"run_id:abc\r\nuptime_in_seconds:1.5\r\n":               nil,
		"run_id:abc\r\nuptime_in_seconds:3153600001\r\n":        nil,
		"run_id:abc\r\nuptime_in_seconds:9223372036854775807\n": nil,
		"run_id:abc\r\nuptime_in_seconds:1e3\r\n":               nil,
		"xrun_id:abc\r\nuptime_in_seconds:1\r\n":                {Uptime: time.Second, At: at},
		"run_id:abc\r\nuptime_in_secondsx:1\r\n":                nil,
		"run_id abc\r\nuptime_in_seconds 1\r\n":                 nil,

		"run_id:" + strings.Repeat("f", maxRunID+1) + "\nuptime_in_seconds:1": {Uptime: time.Second, At: at},
		"run_id:a\x1b[31m\nuptime_in_seconds:1":                               {Uptime: time.Second, At: at},
	} {
		require.Equal(t, want, parseInfo(text, at), "%q", text)
	}
}
