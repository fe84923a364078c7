package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

var byForce = []string{"unlock", "--force", "--yes"}

// call runs a command in this process.
func call(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = dispatch(args, &out, &err)
	return status, out.String(), err.String()
}

// callInTime is call for a command that changes nothing. It calls it again if nodes did not answer in time.
func callInTime(args ...string) (status int, stdout, stderr string) {
	for range 5 {
		status, stdout, stderr = call(args...)
		if !slow.MatchString(stdout + stderr) {
			break
		}
	}
	return status, stdout, stderr
}

// onServers starts five nodes, and returns them with a Redsync that holds the locks of a test.
func onServers(t *testing.T) ([]*realredis.Server, *redsync.Redsync) {
	servers := realredis.Start(t, 5)
	return servers, open(t, servers)
}

// open returns a Redsync on the servers, with a lot of time. Its calls return when all servers have answered.
func open(t *testing.T, servers []*realredis.Server) *redsync.Redsync {
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, pool.New(s.Client()))
	}
	rs := redsync.New(pools...).With(
		redsync.WithExpiry(5*time.Minute), redsync.WithNodeTimeout(20*time.Second), redsync.WithFailFast(false))
	t.Cleanup(func() { rs.Close(t.Context()) })
	return rs
}

// modes are the ways to hold a lock, and what status and unlock must be told to see it.
var modes = []struct {
	names   string
	options []redsync.Option
	flags   []string
	shows   string // in the holder's line
}{
	{"plain", nil, nil, "no owner in its value, of redsync"},
	{"owner", []redsync.Option{redsync.WithOwner("w-7")}, nil, ": w-7, for "},
	{"reader", []redsync.Option{redsync.WithShared()}, nil, "a reader"},
	{"permit", []redsync.Option{redsync.WithPermits(5), redsync.WithWeight(2), redsync.WithFair()}, []string{"--permits", "5"}, "2 permits"},
	{"one two", nil, nil, "no owner"},
	{"fair", []redsync.Option{redsync.WithFair(), redsync.WithFencing()}, nil, "no owner"},
}

// status sees a holder in every mode, and unlock releases it and nothing else.
func TestStatusAndUnlockInEachMode(t *testing.T) {
	servers, rs := onServers(t)
	for _, mode := range modes {
		t.Run(mode.names, func(t *testing.T) {
			names := strings.Fields(mode.names)
			m := rs.NewMutex(names[0], mode.options...)
			if len(names) > 1 {
				m = rs.NewMultiMutex(names)
			}
			args := slices.Concat([]string{"--nodes", listOf(servers)}, mode.flags, names)
			look := append([]string{"status"}, args...)
			status, out, stderr := unlockInTime(t, servers, func() []string {
				m.Unlock() // that of the last try
				require.NoError(t, m.Lock())
				status, out, stderr := callInTime(look...)
				assert.Zero(t, status, out+stderr)
				assert.Empty(t, stderr)
				for _, name := range names {
					assert.Contains(t, out, name+": held\n")
				}
				assert.Contains(t, out, mode.shows)
				assert.NotContains(t, out, m.Value())
				return args
			})
			assert.Zero(t, status, out+stderr)
			assert.Equal(t, 5, strings.Count(out, "): removed\n"), out)
			assert.NotContains(t, out, m.Value())
			ok, _ := m.Valid()
			assert.False(t, ok)

			status, out, _ = callInTime(look...)
			assert.Equal(t, 1, status, out)
			status, _, stderr = callInTime(append(byForce, args...)...)
			assert.Equal(t, 1, status)
			assert.Equal(t, "redsync: nobody holds the lock\n", stderr)
		})
	}
}

// unlockInTime calls unlock with the arguments that set returns. It does both again if nodes did not answer in time.
func unlockInTime(t *testing.T, servers []*realredis.Server, set func() []string) (status int, stdout, stderr string) {
	for range 5 {
		status, stdout, stderr = call(append(byForce, set()...)...)
		if !slow.MatchString(stdout + stderr) {
			break
		}
		for _, s := range servers {
			realredis.Must(t, s, "FLUSHALL")
		}
	}
	return status, stdout, stderr
}

// With several names the exit status is the greatest: not known before free before held.
func TestStatusOfSeveralNames(t *testing.T) {
	servers, rs := onServers(t)
	list := listOf(servers)
	require.NoError(t, rs.NewMutex("held").Lock())
	status, out, _ := callInTime("status", "--nodes", list, "held", "free")
	assert.Equal(t, 1, status)
	assert.Regexp(t, "(?s)^held: held\n.*\nfree: free\n$", out)
	status, out, _ = callInTime("status", "--nodes", list, "--prefix", "he", "ld", "held")
	assert.Equal(t, 1, status)
	assert.Regexp(t, "(?s)^held: held\n.*\nheheld: free\n$", out)

	for _, s := range servers[:3] {
		s.Kill()
	}
	status, out, stderr := callInTime("status", "--nodes", list, "held", "free")
	assert.Equal(t, exitNoQuorum, status)
	assert.Contains(t, out, "held: unknown\n")
	assert.Equal(t, 6, strings.Count(out, "  silent: node #"), out)
	assert.Equal(t, 2, strings.Count(out, "  differs: node #")) // the others have the holder
	assert.Empty(t, stderr)                                     // the report says it

	status, out, _ = call(append(byForce, "--nodes", list, "held")...)
	assert.Equal(t, exitNoQuorum, status, out)
}

// Of several holders unlock releases the one that was named.
func TestUnlockOfOneReader(t *testing.T) {
	servers, rs := onServers(t)
	flags := append(byForce, "--nodes", listOf(servers), "books")
	one := rs.NewMutex("books", redsync.WithShared(), redsync.WithOwner("one"), redsync.WithHandOver(false))
	two := rs.NewMutex("books", redsync.WithShared(), redsync.WithOwner("two"), redsync.WithHandOver(false))
	require.NoError(t, one.Lock())
	require.NoError(t, two.Lock())

	status, out, stderr := callInTime(flags...)
	assert.Equal(t, exitUsage, status)
	assert.Equal(t, "redsync: there are 2 holders: say which with --holder ID\n", stderr)
	id := regexp.MustCompile(`holder (\w+): two,`).FindStringSubmatch(out)
	require.NotNil(t, id, out)

	status, _, stderr = callInTime(append(flags, "--holder", "ffffffff")...)
	assert.Equal(t, exitNotReleased, status)
	assert.Equal(t, "redsync: no node has the holder \"ffffffff\" (any more)\n", stderr)

	status, out, stderr = call(append(flags, "--holder", id[1])...)
	assert.Zero(t, status, out+stderr)
	assert.Contains(t, out, "released: the holder learns of it within ")
	ok, err := one.Valid()
	assert.True(t, ok, err)
	ok, _ = two.Valid()
	assert.False(t, ok)
}

// What a minority of nodes still has can be removed, too.
func TestUnlockOfLeftovers(t *testing.T) {
	servers, _ := onServers(t)
	list := listOf(servers)
	status, out, stderr := unlockInTime(t, servers, func() []string {
		realredis.Must(t, servers[3], "SET", "left", "somebody else's value", "PX", 600_000)
		status, out, _ := callInTime("status", "--nodes", list, "left")
		assert.Equal(t, 1, status)
		id := regexp.MustCompile(`differs: node #3 \(.*\) has (\w+): no owner in its value, kept for another `).FindStringSubmatch(out)
		require.NotNil(t, id, out)
		return []string{"--nodes", list, "left", "--holder", id[1]}
	})
	assert.Contains(t, out, ": removed\n")
	assert.Equal(t, 4, strings.Count(out, ": did not have it\n"), out)
	assert.Contains(t, out, "\nremoved: what was left on 1 node\n")
	assert.Zero(t, status, stderr)
	assert.EqualValues(t, 0, realredis.Must(t, servers[3], "EXISTS", "left"))
}

// --json has the types that the usage text documents, and no more.
func TestStatusJSONIsDocumented(t *testing.T) {
	documented := map[string][]string{} // the fields of each array, those of the object under ""
	in := ""
	for _, entry := range regexp.MustCompile(`(?m)^( {2})?(\w+) {2,}(.*)$`).FindAllStringSubmatch(usageOf("json"), -1) {
		if entry[1] == "" {
			in = ""
		}
		documented[in] = append(documented[in], entry[2])
		if strings.HasPrefix(entry[3], "array, ") {
			in = entry[2]
		}
	}
	fields := func(of any) (names []string) {
		for i := range reflect.TypeOf(of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
		return names
	}
	assert.Equal(t, map[string][]string{
		"": fields(statusJSON{}), "holders": fields(holderJSON{}), "waiters": fields(waiterJSON{}), "nodes": fields(nodeJSON{}),
	}, documented)
}

func TestStatusJSON(t *testing.T) {
	servers, rs := onServers(t)
	m := rs.NewMutex("x", redsync.WithOwner("w"), redsync.WithFencing())
	require.NoError(t, m.Lock())
	servers[4].Kill()
	status, out, _ := callInTime("status", "--json", "--nodes", listOf(servers), "x", "y")
	assert.Equal(t, 1, status)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	var x, y statusJSON
	for i, to := range []*statusJSON{&x, &y} {
		d := json.NewDecoder(strings.NewReader(lines[i]))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(to))
	}
	assert.Equal(t, "held", x.State)
	require.Len(t, x.Holders, 1)
	assert.Equal(t, "w", x.Holders[0].Owner)
	assert.Len(t, x.Holders[0].Process, 16)
	since := must(time.Parse(time.RFC3339Nano, x.Holders[0].Since))
	assert.WithinDuration(t, time.Now(), since, time.Minute)
	assert.Equal(t, fmt.Sprint(m.Fence()), x.Fence)
	require.Len(t, x.Nodes, 5)
	assert.Equal(t, []string{x.Holders[0].ID}, x.Nodes[0].Holders)
	assert.NotEmpty(t, x.Nodes[4].Error)
	assert.NotContains(t, out, m.Value())
	assert.Equal(t, "free", y.State)
	assert.Contains(t, lines[1], `"holders":[],"waiters":[],`)
}

// --watch has a line for each change until a signal ends it.
func TestStatusWatch(t *testing.T) {
	servers, rs := onServers(t)
	for _, test := range []struct{ flags, free, held []string }{
		{nil, []string{" x: free"}, []string{" x: held, by ", "w-1"}},
		{[]string{"--json"}, []string{`"state":"free"`}, []string{`"state":"held"`, "w-1"}},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Args = append([]string{"redsync", "status", "--watch", "--nodes", listOf(servers), "x"}, test.flags...)
		out := must(cmd.StdoutPipe())
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		last := []string{"unknown"}
		next := func(parts []string) {
			require.True(t, lines.Scan())
			for strings.Contains(lines.Text(), "unknown") { // nodes did not answer in time
				require.True(t, lines.Scan())
				if strings.Contains(lines.Text(), last[0]) {
					require.True(t, lines.Scan())
				}
			}
			for _, part := range parts {
				require.Contains(t, lines.Text(), part)
			}
			last = parts
		}
		next(test.free)
		m := rs.NewMutex("x", redsync.WithOwner("w-1"))
		require.NoError(t, m.Lock())
		next(test.held)
		_, err := m.Unlock()
		require.NoError(t, err)
		next(test.free)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	}
}

// What unlock says of the holder follows docs/operating.md.
func TestNotice(t *testing.T) {
	now := time.Now()
	for want, h := range map[string]redsync.Holder{
		"within two round trips if it can hear":   {Owner: "w", Since: now.Add(-time.Minute)},
		"within a second if it can hear":          {Owner: "w", Since: now.Add(-time.Second / 2)},
		"at its own Extend":                       {Library: "redsync v4"},
		"after a third of its expiry at most, if": {Library: "redsync"},
	} {
		assert.Contains(t, notice(h, now), want)
	}
}

// unlock releases nothing that it could not show.
func TestUnlockShowsFirst(t *testing.T) {
	servers, rs := onServers(t)
	m := rs.NewMutex("x")
	require.NoError(t, m.Lock())
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	var stderr bytes.Buffer
	status := dispatch(append(byForce, "--nodes", listOf(servers), "x"), full, &stderr)
	assert.Equal(t, exitInternal, status)
	assert.Contains(t, stderr.String(), "redsync: nothing was released, because the holder cannot be shown: ")
	ok, err := m.Valid()
	assert.True(t, ok, err)
}
