package realredis

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A SentinelSet is a master with a replica, both watched by one Sentinel that promotes the replica within a few seconds.
type SentinelSet struct {
	Master, Replica *Server
	Sentinel        *Server
	Name            string // of the master
}

// StartSentinelSet returns a running set, which ends with the test.
func StartSentinelSet(tb testing.TB) SentinelSet {
	tb.Helper()
	master := Start(tb, 1, "--repl-diskless-sync-delay", "0")[0]
	host, port, _ := net.SplitHostPort(master.Addr())
	replica := Start(tb, 1, "--repl-diskless-sync-delay", "0", "--replicaof", host, port)[0]
	awaitSentinelSet(tb, replica, "master_link_status:up", "info", "replication")
	set := SentinelSet{Master: master, Replica: replica, Name: "main"}
	set.Sentinel = startSentinel(tb, set)
	awaitSentinelSet(tb, set.Sentinel, "master-link-status:ok", "sentinel", "replicas", set.Name)
	return set
}

func startSentinel(tb testing.TB, set SentinelSet) *Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(set.Master.Addr())
	replicaHost, replicaPort, _ := net.SplitHostPort(set.Replica.Addr())
	conf := filepath.Join(tb.TempDir(), "sentinel.conf")
	var text strings.Builder
	for _, line := range []string{
		"monitor %[1]s " + host + " " + port + " 1",
		"known-replica %[1]s " + replicaHost + " " + replicaPort,
		"down-after-milliseconds %[1]s 60000", // until notices: no failover begins because the machine stands still
		"failover-timeout %[1]s 5000",
	} {
		fmt.Fprintf(&text, "sentinel "+line+"\n", set.Name)
	}
	if err := os.WriteFile(conf, []byte(text.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	s := &Server{program: redisServer, dir: tb.TempDir(), args: []string{"--sentinel"}, conf: conf, ready: "+monitor master", tb: tb}
	err := s.settle()
	if err == nil {
		err = s.start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return s
}

// awaitSentinelSet waits until the answer of s to a command contains want.
func awaitSentinelSet(tb testing.TB, s *Server, want string, args ...any) {
	tb.Helper()
	if answer, ok := answers(tb, s, time.Minute, want, args...); !ok {
		tb.Fatalf("%v on %s does not answer %q within a minute:\n%s", args, s.Addr(), want, answer)
	}
}

// answers waits, at most for limit, until the answer of s to a command contains want. It returns the last answer.
func answers(tb testing.TB, s *Server, limit time.Duration, want string, args ...any) (answer string, ok bool) {
	tb.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		answer = fmt.Sprint(Must(tb, s, args...))
		if ok = strings.Contains(answer, want); ok || time.Now().After(end) {
			return answer, ok
		}
	}
}

// Failovers are the reasons for which a Sentinel promotes the replica. Fail returns at once.
var Failovers = []struct {
	Name string
	Fail func(set SentinelSet) error
	Cuts bool // the connections of the old master end; otherwise it keeps them, and only its clients know that they must move
}{
	{"stall", func(set SentinelSet) error { set.Master.Freeze(); return set.notices() }, false},
	{"partition", func(set SentinelSet) error { // as if only the Sentinel could not reach the master
		_, err := set.Master.Do("acl", "setuser", "default", "-ping")
		return errors.Join(err, set.notices())
	}, false},
	{"planned", func(set SentinelSet) error {
		_, err := set.Sentinel.Do("sentinel", "failover", set.Name)
		return err
	}, false},
	{"kill", func(set SentinelSet) error { set.Master.Kill(); return set.notices() }, true},
}

// notices makes the Sentinel find the master down that does not answer for half a second.
func (s SentinelSet) notices() error {
	_, err := s.Sentinel.Do("sentinel", "set", s.Name, "down-after-milliseconds", 500)
	return err
}

// Promoted waits until the Sentinel names the replica as the master. A Sentinel that was stopped for two seconds looks at
// nothing for half a minute (TILT). Then it refuses a replica whose link ended more than ten times down-after before the
// master was found down, so Promoted does what an operator does: it allows more, and asks for the failover.
func (s SentinelSet) Promoted(tb testing.TB) {
	tb.Helper()
	_, port, _ := net.SplitHostPort(s.Replica.Addr())
	for range 12 {
		if _, ok := answers(tb, s.Sentinel, 15*time.Second, port, "sentinel", "get-master-addr-by-name", s.Name); ok {
			return
		}
		Must(tb, s.Sentinel, "sentinel", "set", s.Name, "down-after-milliseconds", 60000)
		_, _ = s.Sentinel.Do("sentinel", "failover", s.Name) // an error if one is under way
	}
	tb.Fatalf("the Sentinel on %s does not promote %s within 3 minutes", s.Sentinel.Addr(), s.Replica.Addr())
}

// Client returns a new client of the set's master, whichever that is. The end of the test closes it.
func (s SentinelSet) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: []string{s.Sentinel.Addr()}})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
