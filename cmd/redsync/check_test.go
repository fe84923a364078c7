package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// generous is how long a node may take in these tests, on a slow machine.
const generous = 20 * time.Second

// keepsAll are the arguments of a server that forgets nothing when it restarts.
var keepsAll = []string{"--appendonly", "yes", "--appendfsync", "always"}

// checks runs check in this process.
func checks(t *testing.T, limit time.Duration, args ...string) (status int, out string) {
	var text bytes.Buffer
	c := &checker{limit: limit, out: &text}
	require.NoError(t, c.parse(args))
	status = c.run()
	return status, text.String()
}

// checkEnds runs check with enough time, requires a status, and returns the output.
func checkEnds(t *testing.T, want int, args ...string) string {
	status, out := checks(t, generous, args...)
	require.Equal(t, want, status, out)
	return out
}

// warningsIn returns the warnings in the output of check, with their further lines.
func warningsIn(out string) []string {
	return regexp.MustCompile(`(?m)^ *warning: .*\n(?:    .*\n)*`).FindAllString(out, -1)
}

// startOne returns a server.
func startOne(t *testing.T, args ...string) *realredis.Server {
	return realredis.Start(t, 1, args...)[0]
}

// as returns the address of a server for a user with ACL rules.
func as(t *testing.T, s *realredis.Server, rules ...string) string {
	args := []any{"acl", "setuser", "locker", "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	realredis.Must(t, s, args...)
	return "redis://locker:secret@" + s.Addr()
}

// isEmptyAgain waits until all keys of a server have expired: check has a limit for keys that it cannot delete.
func isEmptyAgain(t *testing.T, s *realredis.Server) {
	require.Eventually(t, func() bool { return realredis.Must(t, s, "dbsize") == int64(0) }, time.Minute, 10*time.Millisecond)
}

// busyServer starts a server that executes a script which does not end.
func busyServer(t *testing.T) *realredis.Server {
	s := startOne(t, "--lua-time-limit", "10")
	busy := s.Client()
	done := make(chan struct{})
	go func() {
		defer close(done)
		busy.Eval(context.Background(), "while true do end", nil).Err()
	}()
	require.Eventually(t, func() bool {
		_, err := s.Do("ping")
		return err != nil && strings.Contains(err.Error(), "BUSY")
	}, time.Minute, time.Millisecond)
	t.Cleanup(func() {
		s.Do("script", "kill")
		<-done
	})
	return s
}

// checkCommands are the commands of scripts that try check. "server", "busy", "user" and "fake" set OTHER to the address of a
// node: a server with these arguments, one that executes a script for ever, the first node for a user with rules, and a node
// that answers a command with a text (or, to INFO, with one text in the place of another). "checks STATUS ARG..." runs check,
// and leaves its output in the file raw.txt. In out.txt words stand in the place of what differs from run to run.
func checkCommands(t *testing.T) map[string]scriptCommand {
	other := func(address func(*scripted, []string) string) scriptCommand {
		return func(ts *scripted, _ bool, args []string) { ts.Setenv("OTHER", address(ts, args)) }
	}
	all := slices.DeleteFunc(pageRules(t), func(r string) bool { return r == nameRule || r == sideRule })
	return map[string]scriptCommand{
		"server": other(func(_ *scripted, args []string) string {
			return startOne(t, slices.Concat(keepsAll, args)...).Addr()
		}),
		"busy": other(func(*scripted, []string) string { return busyServer(t).Addr() }),
		"user": other(func(ts *scripted, rules []string) string {
			return as(t, serversOf(ts)[0], slices.Concat(all, rules)...)
		}),
		"fake": other(func(ts *scripted, args []string) string {
			if len(args) == 0 {
				return startFake(t, wellAnswer)
			}
			for i := range args {
				text, err := strconv.Unquote(`"` + args[i] + `"`)
				ts.Check(err)
				args[i] = strings.ReplaceAll(text, "LONG", strings.Repeat("1", 900_000))
			}
			if len(args) == 3 {
				args[1] = bulk(strings.ReplaceAll(wellInfo, args[1], args[2]))
			}
			return startFake(t, with(args[0], args[1]))
		}),
		"checks": func(ts *scripted, _ bool, args []string) {
			var text bytes.Buffer
			c := &checker{limit: generous, out: &text} // with answerLimit a slow machine could fail the test
			ts.Check(c.parse(append([]string{"--nodes", ts.Getenv(nodesVariable)}, args[1:]...)))
			status, out := c.run(), text.String()
			ts.Check(os.WriteFile(ts.MkAbs("raw.txt"), []byte(out), 0o600))
			if strconv.Itoa(status) != args[0] {
				ts.Fatalf("status %d, want %s:\n%s", status, args[0], out)
			}
			for _, m := range masks {
				out = m.part.ReplaceAllString(out, m.mask)
			}
			ts.Check(os.WriteFile(ts.MkAbs("out.txt"), []byte(out), 0o600))
		},
	}
}

// A frozen node has its time to answer, and no more.
func TestCheckOfAFrozenNode(t *testing.T) {
	t.Parallel()
	s := startOne(t)
	s.Freeze()
	t.Cleanup(s.Thaw)
	status, out := checks(t, 50*time.Millisecond, "--nodes", s.Addr(), "--lock", "app:17")
	require.Equal(t, exitNoQuorum, status)
	require.Contains(t, out, "no answer\n  warning: it has not answered within 50ms\n0 of 1 nodes answer, 0 can grant locks: too few, the quorum is 1\n1 warning\n")
}

// A node may cease to answer after it has begun.
func TestCheckOfANodeThatCeasesToAnswer(t *testing.T) {
	t.Parallel()
	out := checkEnds(t, exitNoQuorum, "--nodes", startFake(t, with("time", hangUp)))
	require.Contains(t, out, ": has ceased to answer\n")
	require.Contains(t, out, "  warning: it no longer answers: ")
	require.Contains(t, out, "\n0 of 1 nodes answer")

	r := &findings{limit: 50 * time.Millisecond}
	client := oneConn(&redis.Options{Addr: startFake(t, with("time", ""))}) // no answer at all
	defer client.Close()
	node := pool.New(client)
	defer node.Close()
	_, _, err := r.time(node)
	require.EqualError(t, err, "it has not answered within 50ms")
	r.limit, r.until = generous, time.Now() // it has had its time for all answers
	_, _, err = r.time(node)
	require.EqualError(t, err, "it has not answered within 20s")
	r.ask(nil) // panics
	require.ErrorContains(t, r.err, "check panics at what it says: ")
}

// While the restart guard ignores nodes, there is no quorum, and nothing is said of persistence.
func TestCheckWithGuard(t *testing.T) {
	t.Parallel()
	s := startOne(t)
	out := checkEnds(t, exitNoQuorum, "--nodes", s.Addr(), "--guard", "1h")
	require.Regexp(t, `warning: its server started \d+s ago, and the restart guard \(1h0m0s \+ 37\.002s\) ignores it for another 1h0m\d+\.002s\n`, out)
	require.Contains(t, out, "1 of 1 nodes answer, 0 can grant locks: too few, the quorum is 1\n1 warning\n")
	checkEnds(t, 0, "--nodes", startFake(t, wellAnswer), "--guard", "980s") // up for 1000s: the guard is 990.802s
	everysec := with("config get", "*2\r\n"+bulk("appendfsync")+bulk("everysec"))
	out = checkEnds(t, 0, "--nodes", startFake(t, everysec), "--guard", "980s")
	require.Contains(t, out, "appendonly yes, appendfsync everysec\n")
	out = checkEnds(t, exitNoQuorum, "--nodes", startFake(t, wellAnswer), "--guard", "990s")
	require.Contains(t, out, "ignores it for another 902ms")
	out = checkEnds(t, exitNoQuorum, "--nodes", as(t, s, "~*", "&*", "+@all", "-info"), "--guard", "1h")
	require.Equal(t, []string{"  warning: INFO is refused. pool.WithRestartGuard: the node's votes never count\n"}, warningsIn(out))
	_, out = checks(t, generous, "--nodes", as(t, s, "~*", "&*", "+@all", "-info"), "--guard", "1h", "--lock", "app:17")
	require.Contains(t, out, "the ACL denies +info\n    finding two addresses of one server: they are not found\n    pool.WithRestartGuard: ")
}

func TestCheckOfClocks(t *testing.T) {
	t.Parallel()
	at := func(ahead time.Duration) string {
		return startFake(t, func(args []string) string {
			if args[0] == "time" {
				return timeAnswer(time.Now().Add(ahead))
			}
			return wellAnswer(args)
		})
	}
	well := at(0)
	for nodes, says := range map[string]string{ // in front of the last warning but one
		at(100*time.Second) + "," + well:                         `its clock is 1m[34]\d\S* \(±\S+\) ahead of this machine's. A step that sets it back makes keys last longer`,
		at(-50*time.Second) + "," + well:                         `its clock is [45]\d\S* \(±\S+\) behind this machine's. A step that sets it forward ends locks early`,
		at(-time.Minute):                                         "behind this machine's", // one node tells nothing of it
		at(-time.Minute) + "," + at(-time.Minute+10*time.Second): "the clock of this machine is 10s or more ahead of those of all nodes",
		at(time.Minute) + "," + at(time.Minute+10*time.Second):   "the clock of this machine is 10s or more behind those of all nodes",
	} {
		status, out := checks(t, generous, "--nodes", nodes)
		assert.Equal(t, 1, status)
		warnings := warningsIn(out)
		assert.Regexp(t, says, warnings[len(warnings)-1])
		if strings.Contains(says, "of all nodes") {
			assert.Len(t, warnings, 3, out)
		} else {
			assert.Len(t, warnings, 1, out)
		}
	}
}

func TestClockDiff(t *testing.T) {
	t.Parallel()
	for _, c := range cellsOf(`
		1s  | 698ms   | 302ms  | too far | 1s (±698ms) ahead of this machine's
		-1s | 698ms   | -302ms | too far | 1s (±698ms) behind this machine's
		1s  | 699ms   | 301ms  |         | 1s (±699ms) ahead of this machine's
		-1s | 699ms   | -301ms |         | 1s (±699ms) behind this machine's
		1s  | 2s      |        |         | as this machine's (±3s)
		-1s | 2s      |        |         | as this machine's (±3s)
		0s  | 12345ns |        |         | as this machine's (±20µs)`) {
		diff := clockDiff{spanOf(c[0]), spanOf(c[1])}
		assert.Equal(t, spanOf(c[2]), diff.surely())
		assert.Equal(t, c[3] != "", diff.isTooFar())
		assert.Equal(t, c[4], diff.String())
	}
	require.Contains(t, usageOf("check"), fmt.Sprintf("warning from %v on", clockLimit))
	require.Contains(t, usageOf("check"), fmt.Sprintf("if all are %v", clientLimit))
}

// wellInfo is what a node without any fault says.
const wellInfo = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrun_id:RUN\r\nuptime_in_seconds:1000\r\n" +
	"maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\nconnected_slaves:0\r\ncluster_enabled:0\r\n"

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

func timeAnswer(at time.Time) string {
	return fmt.Sprintf("*2\r\n$10\r\n%d\r\n$6\r\n%06d\r\n", at.Unix(), at.Nanosecond()/1000)
}

// wellAnswer is what a node without any fault answers.
func wellAnswer(args []string) string {
	switch args[0] {
	case "hello":
		return "-ERR unknown command\r\n"
	case "info":
		return bulk(wellInfo)
	case "time":
		return timeAnswer(time.Now())
	case "config":
		return "*2\r\n" + bulk("appendfsync") + bulk("always")
	case "script":
		return bulk(redis.NewScript(args[len(args)-1]).Hash())
	case "ping":
		return "+PONG\r\n"
	case "set":
		return "+OK\r\n"
	case "subscribe":
		return "*3\r\n" + bulk("subscribe") + bulk(args[1]) + ":1\r\n"
	}
	return ":1\r\n"
}

// hangUp is the answer of a node that ends the connection.
const hangUp = "hang up"

// startFake returns the address of a node that answers so. Each has a run id of its own.
func startFake(t *testing.T, answer func(args []string) string) string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	end := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(end)
		listener.Close()
		running.Wait()
	})
	runID := url.QueryEscape(listener.Addr().String())
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { <-end; conn.Close() })
			running.Go(func() {
				in := bufio.NewReader(conn)
				for args := readCommand(in); args != nil; args = readCommand(in) {
					text := answer(args)
					if args[0] == "info" && strings.HasPrefix(text, "$") {
						_, text, _ = strings.Cut(text, "\r\n")
						text = bulk(strings.ReplaceAll(strings.TrimSuffix(text, "\r\n"), "RUN", runID))
					}
					if text == hangUp {
						conn.Close()
						return
					}
					if _, err := io.WriteString(conn, text); err != nil {
						return
					}
				}
			})
		}
	})
	return listener.Addr().String()
}

// readCommand returns the next command, nil at the end. Its name is in lower case.
func readCommand(in *bufio.Reader) (args []string) {
	number := func(sign string) int {
		line, err := in.ReadString('\n')
		n, bad := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, sign)))
		if err != nil || bad != nil {
			return -1
		}
		return n
	}
	for range number("*") {
		text := make([]byte, number("$")+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil
		}
		args = append(args, string(text[:len(text)-2]))
	}
	if len(args) > 0 {
		args[0] = strings.ToLower(args[0])
	}
	return args
}

// with returns the answers of a well node, except those to commands that begin with first.
func with(first, text string) func([]string) string {
	return func(args []string) string {
		if strings.HasPrefix(strings.Join(args, " "), first) {
			return text
		}
		return wellAnswer(args)
	}
}

// pageRules returns the rules for all features that docs/permissions.md begins with.
func pageRules(t *testing.T) []string {
	line := regexp.MustCompile(`(?m)^ACL SETUSER locker on >PASSWORD (.*)$`).FindStringSubmatch(page())
	require.NotNil(t, line)
	return strings.Fields(line[1])
}

// page returns docs/permissions.md.
func page() string {
	return textOf("../../docs/permissions.md")
}

var pageLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// bare returns a text of the page without its marks.
func bare(text string) string {
	return strings.NewReplacer("`", "", `\|`, "|").Replace(pageLink.ReplaceAllString(text, "$1"))
}

// rows returns the cells of the rows of a table of the page, the one with that first line.
func rows(t *testing.T, head string) (cells [][]string) {
	_, after, found := strings.Cut(page(), head+"\n")
	require.True(t, found, head)
	for line := range strings.Lines(after) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if strings.HasPrefix(line, "|--") {
			continue
		}
		row := regexp.MustCompile(`[^\\]\|`).Split(strings.TrimSpace(line)[1:], -1) // loses the space in front of each |
		var trimmed []string
		for _, cell := range row[:len(row)-1] {
			trimmed = append(trimmed, strings.TrimSpace(cell))
		}
		cells = append(cells, trimmed)
	}
	require.NotEmpty(t, cells)
	return cells
}

var ruleWords = regexp.MustCompile("`([~&+][^`]*)`")

// rulesIn returns the rules in a cell of the page.
func rulesIn(cell string) (rules []string) {
	for _, words := range ruleWords.FindAllStringSubmatch(cell, -1) {
		rules = append(rules, strings.Fields(bare(words[1]))...)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// otherRows are rows of the page of which check says nothing: they need something that it does not use.
var otherRows = []string{
	"Lock, TryLock, Unlock, Extend, Valid, Do, the watchdog, WithSetNXOnExtend, WithMinHold", // one by one
	"fencing.Redis",
	"the servers' own commands in place of scripts",
}

// What check says of missing rules is what the page says.
func TestCheckSaysWhatThePageOfPermissionsSays(t *testing.T) {
	t.Parallel()
	var names []string
	for _, row := range rows(t, "| feature | rules | without them |") {
		name := bare(row[0])
		if slices.Contains(otherRows, name) {
			continue
		}
		names = append(names, name)
		at := slices.IndexFunc(features, func(f feature) bool { return f.name == name })
		require.GreaterOrEqual(t, at, 0, name)
		f := features[at]
		assert.Equal(t, bare(row[2]), f.cost, name)
		rules := strings.Fields(f.rules + " " + f.also)
		slices.Sort(rules)
		assert.Equal(t, rulesIn(row[1]), rules, name)
		assert.Equal(t, slices.Contains(rules, sideRule), f.sides != "", name)
	}
	require.Len(t, features, len(names))

	var table []baseRule
	for _, row := range rows(t, "| missing | Lock | Extend | Valid | Unlock |") {
		table = append(table, baseRule{strings.NewReplacer(",", "", " or", "").Replace(bare(row[0])), [4]string{bare(row[1]), bare(row[2]), bare(row[3]), bare(row[4])}})
	}
	assert.Equal(t, table, baseRules)
	assert.Contains(t, strings.ReplaceAll(page(), "\n", " "), leftMeans)
	assert.Contains(t, page(), "| `SET` with `PXAT` and `KEEPTTL` in scripts | `WithShared`, `Downgrade` | "+noKeepTTL+" |")
	for _, text := range []string{"delete that key: the library makes it anew", "`{name}:fence` keeps the node from granting locks with `WithFencing`"} {
		assert.Contains(t, strings.ReplaceAll(page(), "\n", " "), text)
	}
}

// Without one of the rules of the page check names that rule and what the page says of it, and nothing else. With all of them
// the node has denied nothing.
func TestCheckNamesEachMissingRule(t *testing.T) {
	t.Parallel()
	all := pageRules(t)
	s := startOne(t, keepsAll...)
	shown := map[string]string{nameRule: "~app:17", sideRule: "~{app:17}:*"}
	words := strings.NewReplacer(sideRule, "~{app:17}:*", nameRule, "~app:17")
	for _, rule := range append(all, "") {
		t.Run(rule, func(t *testing.T) {
			realredis.Must(t, s, "acl", "log", "reset")
			address := as(t, s, slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == rule })...)
			status, out := checks(t, generous, "--nodes", address, "--lock", "app:17")
			isEmptyAgain(t, s)
			denials := realredis.Must(t, s, "acl", "log").([]any)
			denials = slices.DeleteFunc(denials, func(d any) bool { return d.(map[any]any)["object"] == "config|get" })
			if rule == "" || rule == "resetchannels" { // it is the default
				require.Equal(t, 0, status, out)
				require.Empty(t, denials)
				require.Contains(t, out, "no warnings\n")
				require.Contains(t, out, "appendfsync not known: this user may not use CONFIG GET\n"[len("appendfsync "):])
				return
			}
			require.NotEmpty(t, denials)
			want := []string{"  warning: the ACL denies " + cmp.Or(shown[rule], rule)}
			left := false
			for _, row := range rows(t, "| missing | Lock | Extend | Valid | Unlock |") {
				if slices.Contains(rulesIn(row[0]), rule) {
					text := ""
					for i, call := range []string{"Lock", "Extend", "Valid", "Unlock"} {
						if row[i+1] != "" {
							text += ", " + call + " " + bare(row[i+1])
							left = left || strings.Contains(row[i+1], "left")
						}
					}
					want = append(want, words.Replace("without "+rule+": "+text[2:]))
				}
			}
			if left {
				want = append(want, leftMeans)
			}
			for _, row := range rows(t, "| feature | rules | without them |") {
				name := bare(row[0])
				switch {
				case slices.Contains(otherRows, name), name == guardFeature, name == "WithPermits" && rule == "+time":
				case slices.Contains(rulesIn(row[1]), rule):
					want = append(want, name+": "+words.Replace(bare(row[2])))
				}
			}
			votes := 1
			wantStatus := exitWarnings
			if rule == "+set" || rule == nameRule {
				votes, wantStatus = 0, exitNoQuorum
			}
			require.Equal(t, []string{strings.Join(want, "\n    ") + "\n"}, warningsIn(out))
			require.Contains(t, out, fmt.Sprintf("1 of 1 nodes answer, %d can grant locks", votes))
			require.Equal(t, wantStatus, status)
		})
	}
}

// The texts of denials are those of other versions than the one of the other tests.
func TestCheckReadsDenials(t *testing.T) {
	t.Parallel()
	for _, row := range cellsOf(`
		command | NOPERM this user has no permissions to run the 'set' command or its subcommand
		command | NOPERM this user has no permissions to run the 'script;load' command
		command | NOPERM User key has no permissions to run the 'set' command
		command | ERR The user executing the script can't run this command or subcommand script: 1, on @u:1.
		key     | NOPERM this user has no permissions to access one of the keys used as arguments
		key     | NOPERM No permissions to access a key
		key     | ERR ACL failure in script: No permissions to access a key
		channel | NOPERM this user has no permissions to access one of the channels used as arguments
		channel | NOPERM No permissions to access a channel
		nothing | WRONGTYPE Operation against a key`) {
		command, key, channel := denialOf(answer(strings.ReplaceAll(row[1], ";", "|")))
		want := [3]bool{row[0] == "command", row[0] == "key", row[0] == "channel"}
		assert.Equal(t, want, [3]bool{command, key, channel}, row[1])
	}
}

// An answer is an error that a node answers with.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// A lock that is held stays as it is, and nobody is woken.
func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()
	s, all := startOne(t, keepsAll...), []string{"app:17", "{app:17}:queue", "{app:17}:fence", "{app:17}:slot:0", "{app:17}:slots"}
	for _, key := range all {
		realredis.Must(t, s, "set", key, "value of "+key, "px", "3600000")
	}
	before := realredis.Must(t, s, "dump", "app:17")
	out := checkEnds(t, 0, "--nodes", s.Addr(), "--lock", "app:17")
	require.Equal(t, before, realredis.Must(t, s, "dump", "app:17"))
	require.Equal(t, int64(5), realredis.Must(t, s, "dbsize"))
	for _, key := range all {
		require.Equal(t, "value of "+key, realredis.Must(t, s, "get", key))
		require.Greater(t, realredis.Must(t, s, "pttl", key), int64(3000000))
	}
	require.NotContains(t, out, "value of")
	realredis.Must(t, s, "config", "resetstat")
	out = checkEnds(t, 0, "--nodes", s.Addr())
	require.NotContains(t, out, "permissions")
	stats := fmt.Sprint(realredis.Must(t, s, "info", "commandstats"))
	for _, command := range regexp.MustCompile(`cmdstat_([^:]*)`).FindAllStringSubmatch(stats, -1) {
		require.Contains(t, strings.Fields("config|resetstat config|get hello client|setinfo info ping script|load time"), command[1])
	}
}

// With --before and --after each list needs a quorum.
func TestCheckOfJointSets(t *testing.T) {
	t.Parallel()
	a, b := startFake(t, wellAnswer), startFake(t, wellAnswer)
	dead := startOne(t)
	dead.Kill()
	out := checkEnds(t, 1, "--before", a, "--after", a+","+b+","+dead.Addr())
	require.Contains(t, out, "node #0 of --before ("+a+"): answers\n")
	require.Contains(t, out, "1 of 1 nodes of --before answer, 1 can grant locks: none may fail\n")
	require.Contains(t, out, "node #2 of --after ("+dead.Addr()+"): no answer\n")
	require.Contains(t, out, "2 of 3 nodes of --after answer, 2 can grant locks: none may fail\n1 warning\n")
	checkEnds(t, exitNoQuorum, "--before", dead.Addr(), "--after", a+","+b+","+dead.Addr())
}

// masks are the parts of the output that differ from run to run.
var masks = []struct {
	part *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`(latency +)\S+\n`), "${1}LATENCY\n"},
	{regexp.MustCompile(`(server +)(Redis|Valkey) \S+\n`), "${1}VERSION\n"},
	{regexp.MustCompile(`(run id +)\S+\n`), "${1}RUN-ID\n"},
	{regexp.MustCompile(`(uptime +)\S+\n`), "${1}UPTIME\n"},
	{regexp.MustCompile(`(clock +as this machine's \(±)\S+\)`), "${1}UNCERTAINTY)"},
	{regexp.MustCompile(`dial tcp ADDRESS: .*`), "dial tcp ADDRESS: REASON"},
}
