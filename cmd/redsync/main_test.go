package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// TestMain makes this program be redsync where a test runs it by that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"redsync": main, holderName: main, probeName: probeMain})
}

// listOf returns the addresses of servers in the form of --nodes.
func listOf(servers []*realredis.Server) string {
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.Addr())
	}
	return strings.Join(addresses, ",")
}

// serversKey is the key of a script's nodes in its environment.
type serversKey struct{}

// TestScripts runs each script in testdata/script on five nodes of its own. A script has the commands "kill N", "freeze N"
// and "thaw N" for node number N, and "delete NAME", which takes a lock off all nodes.
func TestScripts(t *testing.T) {
	onNode := func(do func(*realredis.Server)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, _ bool, args []string) {
			n, err := strconv.Atoi(args[0])
			ts.Check(err)
			do(ts.Value(serversKey{}).([]*realredis.Server)[n])
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			servers := realredis.Start(t, 5)
			e.Values[serversKey{}] = servers
			e.Setenv(nodesVariable, listOf(servers))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kill":   onNode((*realredis.Server).Kill),
			"freeze": onNode((*realredis.Server).Freeze),
			"thaw":   onNode((*realredis.Server).Thaw),
			"delete": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, s := range ts.Value(serversKey{}).([]*realredis.Server) {
					_, err := s.Do("DEL", args[0])
					ts.Check(err)
				}
			},
		},
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("REDSYNC_TEXTS") == "rewrite",
	})
}
