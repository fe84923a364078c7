package realredis

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

const clusterEnabled = "--cluster-enabled"

// StartCluster returns three masters of a Redis Cluster that know each other and share the slots.
// The first master has the lowest slots.
func StartCluster(tb testing.TB) []*Server {
	tb.Helper()
	return StartClusters(tb, 1)[0]
}

// StartClusters returns n clusters like that of StartCluster. A master waits 2 s before it serves
// its slots, and the masters of all clusters wait at the same time.
func StartClusters(tb testing.TB, n int) (clusters [][]*Server) {
	tb.Helper()
	for range n {
		servers := Start(tb, 3, clusterArgs...)
		if err := join(servers); err != nil {
			tb.Fatal(err)
		}
		clusters = append(clusters, servers)
	}
	for _, servers := range clusters {
		AwaitCluster(tb, servers)
	}
	return clusters
}

// LaunchClusters returns n clusters of so many masters, like those of StartClusters. stop is that of LaunchAll.
func LaunchClusters(n, masters int) (clusters [][]*Server, stop func(), err error) {
	all, stop, err := LaunchAll(n*masters, clusterArgs...)
	if err != nil {
		return nil, nil, err
	}
	for servers := range slices.Chunk(all, masters) {
		err = errors.Join(err, join(servers))
		clusters = append(clusters, servers)
	}
	for _, servers := range clusters {
		if err == nil {
			err = await(servers)
		}
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return clusters, stop, nil
}

// join lets masters share the slots, and tells them to meet. They may not know each other yet.
func join(servers []*Server) error {
	for i, s := range servers {
		commands := [][]any{append([]any{"cluster", "addslots"}, share(i, len(servers))...), {"cluster", "set-config-epoch", i + 1}}
		for _, other := range servers[:i] {
			commands = append(commands, meeting(other))
		}
		for _, args := range commands {
			if _, err := s.Do(args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// share returns the slots of master i of n. Before Redis 7.0 each must be named.
func share(i, n int) (slots []any) {
	for slot := i * 16384 / n; slot < (i+1)*16384/n; slot++ {
		slots = append(slots, slot)
	}
	return slots
}

// A replica need not wait for others, and nobody declares a frozen node failed, however slow the machine is.
var clusterArgs = []string{clusterEnabled, "yes", "--repl-diskless-sync-delay", "0", "--cluster-node-timeout", "300000"}

// StartClusterNode returns the only node of a new cluster, without slots.
func StartClusterNode(tb testing.TB) *Server {
	tb.Helper()
	return Start(tb, 1, clusterArgs...)[0]
}

// Meet makes s a node of the cluster of other.
func Meet(tb testing.TB, s, other *Server) {
	tb.Helper()
	Must(tb, s, meeting(other)...)
}

// meeting returns the command that makes a server a node of the cluster of other.
func meeting(other *Server) []any {
	host, port, _ := net.SplitHostPort(other.Addr())
	args := []any{"cluster", "meet", host, port}
	if other.bus != "" {
		args = append(args, other.bus)
	}
	return args
}

// AwaitCluster waits until every node reports that the cluster is up and that it is connected to all servers,
// which must be all the nodes of the cluster. Before that, a message published on one node may not reach
// subscribers on another: Redis forwards it only to the nodes that the publishing node already knows.
func AwaitCluster(tb testing.TB, servers []*Server) {
	tb.Helper()
	if err := await(servers); err != nil {
		tb.Fatal(err)
	}
}

func await(servers []*Server) error {
	for _, s := range servers {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			info, err1 := s.Do("cluster", "info")
			nodes, err2 := s.Do("cluster", "nodes")
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			known := fmt.Sprint(nodes)
			if strings.Contains(fmt.Sprint(info), "cluster_state:ok") && !strings.Contains(known, "handshake") &&
				strings.Count(known, " connected") == len(servers) {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("the cluster is not up within a minute:\n%v\n%v", info, nodes)
			}
		}
	}
	return nil
}

// Must runs a command on s and returns the answer. An error fails the test.
func Must(tb testing.TB, s *Server, args ...any) any {
	tb.Helper()
	answer, err := s.Do(args...)
	if err != nil {
		tb.Fatalf("%v: %v", args, err)
	}
	return answer
}
