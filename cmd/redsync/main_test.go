package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// TestMain makes this program be another one where a test runs it by that name.
func TestMain(m *testing.M) {
	testscript.Main(checked{m}, roles)
}

// roles are what this program can be for tests, by name.
var roles = map[string]func(){"redsync": main, holderName: main, "forget": forget}

// checked runs the tests, and fails if goroutines are left.
type checked struct{ tests *testing.M }

func (c checked) Run() int {
	if err := flag.Set("test.parallel", "4"); err != nil { // scripts mostly wait
		panic(err)
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup; what tests start shall have the default
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := c.tests.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// forget is a program for scripts: "forget NAME" deletes a lock on all nodes, so that its holder loses it.
func forget() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for addr := range strings.SplitSeq(os.Getenv("NODES"), ",") {
		client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})
		n, err := client.Del(ctx, os.Args[1]).Result()
		for n == 0 && err == nil { // COMMAND has begun when a quorum had the lock
			time.Sleep(5 * time.Millisecond)
			n, err = client.Del(ctx, os.Args[1]).Result()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "forget:", err)
			os.Exit(1)
		}
		client.Close()
	}
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

type (
	scripted      = testscript.TestScript
	scriptCommand = func(*scripted, bool, []string)
)

// scriptNodes is how many nodes a script has.
const scriptNodes = 5

// TestScripts runs each script in testdata/script on five nodes of its own. Their addresses are in $REDSYNC_NODES, in $NODES,
// which COMMAND gets, too, and one by one in $NODE0 to $NODE4. Their processes are $PID0 to $PID4. A script has the commands
//
//   - "crash N", "start N" and "freeze N" for node number N,
//   - "redis N COMMAND ARG...", which runs a command of Redis on that node, and "nodes COMMAND ARG...", which runs it on all
//     nodes that were not killed,
//   - "empty N", which waits until the node has no key,
//   - "delete NAME", which takes a lock off all nodes,
//   - "held NAME" and "! held NAME", which wait until all or none of the nodes have a key,
//   - "status N PROGRAM ARG...", which is exec with a certain exit status. If it is not one of COMMAND's, use "ours N", which
//     also demands a line of redsync on stderr,
//   - "quiet", which is "! stderr ." on a machine that may be slow: see slow,
//   - "names FILE PROGRAM ARG...", which is "ours 75" for a lock whose owner is in FILE, and stderr names it,
//   - "tls", which starts a node with TLS at $TLSNODE, with certificates in ca.pem, cert.pem and key.pem,
//   - those of checkCommands. For them $TWICE is another address of node 0, and $BAD a name that is bad for a terminal.
func TestScripts(t *testing.T) {
	realredis.Start(t, 0) // skips all at once: a script cannot
	onNode := func(do func(*realredis.Server)) scriptCommand {
		return func(ts *scripted, _ bool, args []string) {
			n, err := strconv.Atoi(args[0])
			ts.Check(err)
			do(serversOf(ts)[n])
		}
	}
	commands := checkCommands(t)
	maps.Copy(commands, map[string]scriptCommand{
		"crash":  onNode((*realredis.Server).Kill),
		"start":  onNode((*realredis.Server).Restart),
		"freeze": onNode((*realredis.Server).Freeze),
		"redis": func(ts *scripted, _ bool, args []string) {
			onNode(func(s *realredis.Server) { onEach(ts, []*realredis.Server{s}, args[1:]) })(ts, false, args)
		},
		"empty": onNode(func(s *realredis.Server) { isEmptyAgain(t, s) }),
		"nodes": func(ts *scripted, _ bool, args []string) {
			onAll(ts, args...)
		},
		"delete": func(ts *scripted, _ bool, args []string) {
			onAll(ts, "DEL", args[0])
		},
		"held":   checkHeld,
		"status": func(ts *scripted, _ bool, args []string) { endsWith(ts, args) },
		"ours": func(ts *scripted, _ bool, args []string) {
			endsWith(ts, args)
			wantLine(ts)
		},
		"quiet": checkQuiet,
		"names": awaitOwner,
		"tls":   func(ts *scripted, _ bool, _ []string) { startTLS(t, ts) },
	})
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			servers := realredis.Start(t, scriptNodes)
			e.Values[serversKey{}] = servers
			e.Setenv(nodesVariable, listOf(servers))
			e.Setenv("NODES", listOf(servers))
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each process with the race detector ends a second later
			for i, s := range servers {
				e.Setenv(fmt.Sprint("NODE", i), s.Addr())
				e.Setenv(fmt.Sprint("PID", i), strconv.Itoa(s.Pid()))
			}
			e.Setenv("TWICE", strings.Replace(servers[0].Addr(), "127.0.0.1", "localhost", 1))
			e.Setenv("BAD", "app:\x1b[2J\n")
			return nil
		},
		Cmds:                commands,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("REDSYNC_TEXTS") == "rewrite",
	})
}

func serversOf(ts *scripted) []*realredis.Server {
	return ts.Value(serversKey{}).([]*realredis.Server)
}

// onAll runs a command on all nodes, and returns the replies.
func onAll(ts *scripted, args ...string) []any {
	return onEach(ts, serversOf(ts), args)
}

// onEach is onAll for these nodes.
func onEach(ts *scripted, servers []*realredis.Server, args []string) []any {
	var command, replies []any
	for _, a := range args {
		command = append(command, a)
	}
	for _, s := range servers {
		reply, err := s.Do(command...)
		ts.Check(err)
		replies = append(replies, reply)
	}
	return replies
}

// checkHeld is the command held. COMMAND begins when a quorum has the lock, and redsync ends although slow nodes have not
// released it.
func checkHeld(ts *scripted, not bool, args []string) {
	want, patient := int64(scriptNodes), time.Minute
	if not {
		want, patient = 0, releaseTime
	}
	for end := time.Now().Add(patient); ; time.Sleep(5 * time.Millisecond) {
		have := int64(0)
		for _, n := range onAll(ts, "EXISTS", args[0]) {
			have += n.(int64)
		}
		if have == want {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%d nodes have %s, not %d", have, args[0], want)
		}
	}
}

// releaseTime is for how long slow nodes may still have a lock that redsync has released. The default --ttl is longer.
const releaseTime = 10 * time.Second

// slow finds what redsync says on a slow machine: that a node did not answer in time.
var slow = regexp.MustCompile(`no answer|not answer`)

// checkQuiet is the command quiet.
func checkQuiet(ts *scripted, _ bool, _ []string) {
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		if !slow.MatchString(line) {
			ts.Fatalf("a line on stderr: %q", line)
		}
	}
}

// awaitOwner is the command names. Who has no lock asks the nodes for its owner, but only for a moment.
func awaitOwner(ts *scripted, _ bool, args []string) {
	owner := strings.TrimSpace(ts.ReadFile(args[0]))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		endsWith(ts, append([]string{strconv.Itoa(exitTaken)}, args[1:]...))
		wantLine(ts)
		if strings.Contains(ts.ReadFile("stderr"), owner) {
			return
		}
	}
	ts.Fatalf("stderr does not name %q", owner)
}

// wantLine fails the script unless redsync has written a line to stderr.
func wantLine(ts *scripted) {
	if said := ts.ReadFile("stderr"); !strings.HasPrefix(said, "redsync: ") && !strings.Contains(said, "\nredsync: ") {
		ts.Fatalf("no line of redsync on stderr: %q", said)
	}
}

// inVain finds what redsync says if too few nodes have answered in the time that it had.
var inVain = regexp.MustCompile(`no answer|deadline exceeded`)

// endsWith runs a program that must end with a certain exit status. On a slow machine it may run some times until the nodes
// answer in time.
func endsWith(ts *scripted, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	for range 5 {
		got = statusAfter(ts, args[1:])
		if got == want || got != exitNoQuorum || !inVain.MatchString(ts.ReadFile("stderr")) {
			break
		}
	}
	if got != want {
		ts.Fatalf("exit status %d, not %d", got, want)
	}
}

// statusAfter runs a program, and returns its exit status.
func statusAfter(ts *scripted, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	return exit.ExitCode()
}
