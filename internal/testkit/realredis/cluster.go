package realredis

import (
	"fmt"
	"net"
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
		clusters = append(clusters, meetThree(tb))
	}
	for _, servers := range clusters {
		AwaitCluster(tb, servers)
	}
	return clusters
}

// meetThree returns three masters that share the slots and have been told to meet. They may not
// know each other yet.
func meetThree(tb testing.TB) (servers []*Server) {
	tb.Helper()
	for i := range 3 {
		s := StartClusterNode(tb)
		Must(tb, s, append([]any{"cluster", "addslots"}, third(i)...)...)
		Must(tb, s, "cluster", "set-config-epoch", i+1)
		servers = append(servers, s)
		if i > 0 {
			Meet(tb, s, servers[0])
		}
	}
	return servers
}

// third returns the slots of master i of three. Before Redis 7.0 each must be named.
func third(i int) (slots []any) {
	for slot := i * 16384 / 3; slot < (i+1)*16384/3; slot++ {
		slots = append(slots, slot)
	}
	return slots
}

// StartClusterNode returns the only node of a new cluster, without slots.
func StartClusterNode(tb testing.TB) *Server {
	tb.Helper()
	// A replica need not wait for others, and nobody declares a frozen node failed, however slow the machine is.
	return Start(tb, 1, clusterEnabled, "yes", "--repl-diskless-sync-delay", "0", "--cluster-node-timeout", "300000")[0]
}

// Meet makes s a node of the cluster of other.
func Meet(tb testing.TB, s, other *Server) {
	tb.Helper()
	host, port, _ := net.SplitHostPort(other.Addr())
	args := []any{"cluster", "meet", host, port}
	if other.bus != "" {
		args = append(args, other.bus)
	}
	Must(tb, s, args...)
}

// AwaitCluster waits until every node reports that the cluster is up and that it is connected to all servers,
// which must be all the nodes of the cluster. Before that, a message published on one node may not reach
// subscribers on another: Redis forwards it only to the nodes that the publishing node already knows.
func AwaitCluster(tb testing.TB, servers []*Server) {
	tb.Helper()
	for _, s := range servers {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			info := fmt.Sprint(Must(tb, s, "cluster", "info"))
			nodes := fmt.Sprint(Must(tb, s, "cluster", "nodes"))
			if strings.Contains(info, "cluster_state:ok") && !strings.Contains(nodes, "handshake") &&
				strings.Count(nodes, " connected") == len(servers) {
				break
			}
			if time.Now().After(end) {
				tb.Fatalf("the cluster is not up within a minute:\n%s\n%s", info, nodes)
			}
		}
	}
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
