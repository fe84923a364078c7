package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// A service is a database with several endpoints that speaks RESP3 and pushes notifications of maintenance. It answers
// "where" with the endpoint, and "late" never.
type service struct {
	refuses bool // it knows no notifications
	old     bool // it does not know HELLO, and ends a connection that asks for notifications
	pushes  string

	mu     sync.Mutex
	dialed []string // the endpoints of all connections
	open   []*talk
	asked  int
}

const endpoint, newEndpoint = "10.0.0.1:7000", "10.0.0.2:7000"

func (s *service) client(changes ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{
		Addr: endpoint, ReadTimeout: readTimeout, WriteBufferSize: handshakeSize,
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr != endpoint && addr != newEndpoint {
				return nil, fmt.Errorf("nobody is at %s", addr)
			}
			ours, theirs := net.Pipe()
			k := newTalk(theirs)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dialed, s.open = append(s.dialed, addr), append(s.open, k)
			if len(s.dialed) > 1000 {
				return nil, errors.New("too many connections")
			}
			go s.serve(addr, k)
			return ours, nil
		},
	}
	for _, change := range changes {
		change(options)
	}
	return redis.NewClient(options)
}

func (s *service) serve(addr string, k *talk) {
	defer func() { _ = k.Close() }()
	for cmd := range k.all {
		word := fmt.Sprint(cmd[:min(len(cmd), 2)]...)
		switch {
		case s.old && cmd[0] == "hello":
			word = "unknown"
		case s.old && word == "clientmaint_notifications":
			return
		}
		switch word {
		case "hello2":
			k.say("*2\r\n+proto\r\n:2\r\n")
		case "hello3":
			k.say("%%1\r\n+proto\r\n:3\r\n")
		case "clientmaint_notifications":
			s.mu.Lock()
			s.asked++
			s.mu.Unlock()
			if s.refuses {
				k.say("-ERR unknown subcommand 'maint_notifications'\r\n")
				continue
			}
			k.say("+OK\r\n%s", s.pushes)
		case "infoserver":
			k.say("=38\r\ntxt:run_id:peer\r\nuptime_in_seconds:5\r\n\r\n")
		case "where":
			k.say("+%s\r\n", addr)
		case "late":
		case "subscribechannel":
			k.say(">3\r\n+subscribe\r\n+channel\r\n:1\r\n>3\r\n+message\r\n+channel\r\n+%s\r\n", addr)
		case "ping":
			k.say("+PONG\r\n")
		default:
			k.reply(cmd)
		}
	}
}

// where asks p for the endpoint of its connection.
func where(tb testing.TB, p Pool) any {
	tb.Helper()
	return answer(tb, p, "where").Value
}

// push pushes words on all connections. A word that is a number is sent as one, and "null" as null.
func (s *service) push(words string) {
	parts := strings.Fields(words)
	text := fmt.Sprintf(">%d\r\n", len(parts))
	for _, word := range parts {
		if _, err := strconv.Atoi(word); err == nil {
			word = ":" + word
		} else if word = "+" + word; word == "+null" {
			word = "_"
		}
		text += word + crLF
	}
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for _, k := range open {
		go func() { _, _ = io.WriteString(k, text) }() // nobody may read it
	}
	synctest.Wait()
}

// MOVING, of all forms: the next request goes to the new endpoint, or to that of the client, at the moment when go-redis
// goes there. "" means that the connection stays.
func TestMoving(t *testing.T) {
	for name, c := range map[string]struct {
		push  string
		after time.Duration
		want  string
	}{
		"an endpoint":           {"MOVING 1 30 " + newEndpoint, 0, newEndpoint},
		"null":                  {"MOVING 1 30 null", 15 * time.Second, endpoint},
		"no endpoint":           {"MOVING 1 5", 2 * time.Second, endpoint},
		"null, as text":         {"MOVING 1 5 <nil>", 2 * time.Second, endpoint},
		"without a number":      {"MOVING x 5 " + newEndpoint, 0, ""},
		"without a time":        {"MOVING 1 x " + newEndpoint, 0, ""},
		"a negative time":       {"MOVING 1 -5 " + newEndpoint, 0, ""},
		"a time without end":    {"MOVING 1 1152921504606846976 null", 0, ""},
		"a number for it":       {"MOVING 1 5 7", 0, ""},
		"too short":             {"MOVING 1", 0, ""},
		"an endpoint of nobody": {"MOVING 1 5 10.0.0.3", 0, ""},
		"another push":          {"invalidate null", 0, ""},
	} {
		virtually(t, name, func(t *testing.T) {
			s := new(service)
			p := newOf(t, s.client())
			first := answer(t, p, "where")
			require.Equal(t, "peer", first.Server.RunID)
			s.push(c.push)
			if c.after > 0 {
				time.Sleep(c.after - time.Millisecond)
				require.Equal(t, first.Conn, answer(t, p, "where").Conn)
				settle(time.Millisecond)
			}
			r := answer(t, p, "where")
			if c.want == "" {
				time.Sleep(20 * time.Second) // all attempts have failed
				r = answer(t, p, "where")
				require.Equal(t, first.Conn, r.Conn)
				c.want = endpoint
			} else {
				require.Greater(t, r.Conn, first.Conn)
			}
			require.Equal(t, c.want, r.Value)
			s.open[len(s.open)-1].Close()
			synctest.Wait()
			require.Equal(t, endpoint, where(t, p), "later connections lead to the client's address")
		})
	}
}

// Each connection is told to move at once. The pool moves once a second, not without end.
func TestMovingAgainAndAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &service{pushes: ">4\r\n+MOVING\r\n:1\r\n:30\r\n+" + newEndpoint + "\r\n"}
		p := newOf(t, s.client())
		answer(t, p, "where")
		time.Sleep(10 * renewPause)
		if where(t, p) != newEndpoint { // the connection has ended in the midst of a move: the client's own address sends to the new one again
			time.Sleep(renewPause)
			require.Equal(t, newEndpoint, where(t, p))
		}
		synctest.Wait()
		s.mu.Lock()
		require.LessOrEqual(t, len(s.dialed), 15)
		s.mu.Unlock()
	})
}

// What the old connection owes is answered if the node answers. If it does not, requests that wait go to the new
// connection all the same, and the late ones are Unknown.
func TestMovingWhileRepliesAreOwed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(service)
		p, in, start := newOf(t, s.client()), make(replies, 2), time.Now()
		answer(t, p, "where")
		send(t, p, in, "late")
		synctest.Wait()
		s.push("MOVING 1 30 " + newEndpoint)
		time.Sleep(readTimeout / 2)
		s.open[0].say("+answered\r\n")
		require.Equal(t, "answered", in.wait(t).Value)
		require.Equal(t, readTimeout/2, time.Since(start), "nobody waits for the new connection, so the old one has its time")
		require.Equal(t, newEndpoint, where(t, p))

		s.open[1].say("+OK\r\n") // an unsolicited reply ends it, and is no answer to the next request
		synctest.Wait()
		require.Equal(t, endpoint, where(t, p))
		send(t, p, in, "late")
		synctest.Wait()
		s.push("MOVING 2 30 " + newEndpoint)
		start = time.Now()
		require.Equal(t, newEndpoint, where(t, p))
		require.Equal(t, moveWait, time.Since(start))
		late := in.wait(t)
		require.ErrorIs(t, late.Err, errAskedToMove)
		require.Equal(t, Unknown, late.Fate)
	})
}

// Who asks for notifications, and what follows if the node refuses.
func TestWhoHeedsNotifications(t *testing.T) {
	for name, c := range map[string]struct {
		mode     maintnotifications.Mode
		protocol int
		refuses  bool
		old      bool
		asked    int
		fails    string
	}{
		"by default":           {asked: 1},
		"auto":                 {mode: "auto", refuses: true, asked: 1},
		"enabled":              {mode: "enabled", asked: 1},
		"enabled, and refused": {mode: "enabled", refuses: true, asked: 1, fails: "unknown subcommand"},
		"enabled, and too old": {mode: "enabled", old: true, fails: "has refused HELLO"},
		"too old":              {old: true},
		"disabled":             {mode: "disabled"},
		"RESP2":                {protocol: 2},
	} {
		virtually(t, name, func(t *testing.T) {
			s := &service{refuses: c.refuses, old: c.old, pushes: ">2\r\n+FAILED_OVER\r\n:1\r\n"}
			client := s.client(func(o *redis.Options) {
				o.Protocol = c.protocol
				if c.mode != "" {
					o.MaintNotificationsConfig = &maintnotifications.Config{Mode: c.mode}
				}
			})
			p := newOf(t, client)
			if c.fails != "" {
				require.ErrorContains(t, unsent(t, p), c.fails)
			} else {
				require.Equal(t, endpoint, where(t, p))
			}
			require.Equal(t, c.asked, s.asked)
			if name == "too old" {
				subscribed(t, p).Hears("message " + endpoint)
			}
			if name == "auto" { // the user's client is refused, too, and asks no more
				require.NoError(t, client.Ping(t.Context()).Err())
				s.open[0].Close()
				synctest.Wait()
				answer(t, p, "where")
				require.Equal(t, 2, s.asked)
			}
		})
	}
}

// While a node fails over, a stream waits up to 5 s for a reply, and tries no second connection. Afterwards it waits as
// long as ever.
func TestFailingOver(t *testing.T) {
	for name, pushes := range map[string][2]string{
		"failover":  {"FAILING_OVER", "FAILED_OVER"},
		"migration": {"MIGRATING", "MIGRATED"},
		"slots":     {"SMIGRATING", "SMIGRATED"},
	} {
		virtually(t, name, func(t *testing.T) {
			s := new(service)
			p, in := newOf(t, s.client()), make(replies, 1)
			late := func(want time.Duration) {
				t.Helper()
				start := time.Now()
				require.NoError(t, p.Send(Request{Args: []any{"late"}, To: in, Within: time.Second}))
				require.Equal(t, Unknown, in.wait(t).Fate)
				require.Equal(t, want, time.Since(start).Truncate(100*time.Millisecond))
			}
			answer(t, p, "where")
			s.push(pushes[0] + " 1 5")
			late(maxReadTimeout)
			require.Len(t, s.dialed, 1)
			answer(t, p, "where")
			s.push(pushes[0] + " 1 5")
			s.push(pushes[1] + " 1")
			late(time.Second) // a second connection shows that the node is well
		})
	}
}

// A subscription moves with its client, with nothing but a reconnection in between.
func TestSubscriptionMoves(t *testing.T) {
	for name, c := range map[string]struct {
		push  string
		after time.Duration
		want  string
	}{
		"endpoint": {"MOVING 1 30 " + newEndpoint, 0, newEndpoint},
		"null":     {"MOVING 1 4 null", 2 * time.Second, endpoint},
	} {
		virtually(t, name, func(t *testing.T) {
			s := new(service)
			ear := subscribed(t, newOf(t, s.client()))
			ear.Hears("message " + endpoint)
			time.Sleep(time.Minute)
			s.push(c.push)
			start := time.Now()
			ear.Hears("unsubscribed", "subscribed", "message "+c.want)
			require.Equal(t, c.after, time.Since(start))
			require.Len(t, s.dialed, 2)
			s.open[1].Close()
			ear.Hears("unsubscribed", "subscribed", "message "+endpoint)
		})
	}
}
