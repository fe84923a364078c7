package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// asProgram is a variable in whose presence this binary is the program.
const asProgram = "REDSYNC_TEST_PRODUCTION"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	m.Run()
}

// program returns a call of the program.
func program(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=yes")
	return cmd
}

// docs/production.md shows the two files that a service copies, as they are.
func TestPageShowsTheProgram(t *testing.T) {
	page, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	for _, file := range []string{"locks.go", "jobs.go"} {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(page), "```go\n"+string(code)+"```\n")
	}
}

// The program works on one server, and on five: its jobs go on while one of five is down and another one has forgotten its
// keys. It logs in as a user, and its locks name it. After SIGTERM it ends without an error, and leaves no lock.
func TestJobsGoOnWhileServersFail(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	for _, n := range []int{1, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			const user, password = "locker", "secret-of-the-locker"
			servers := realredis.Start(t, n, "--requirepass", "of-another", "--user", user, "on", ">"+password, "~*", "&*", "+@all")
			var addresses []string
			var clients []*redis.Client
			for i, s := range servers {
				addresses = append(addresses, s.Addr())
				clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr(), Username: user, Password: password}))
				defer clients[i].Close()
			}
			time.Sleep(3 * time.Second) // servers tell their uptime in whole seconds: see pool.WithNoLocksBefore
			before := time.Now().UTC().Format(time.RFC3339)

			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			// The expiry gives the nodes 3 s to answer.
			cmd := program(ctx, "-nodes", strings.Join(addresses, ","), "-user", user, "-no-locks-before", before,
				"-expiry", "1m", "-guard", "1m", "-step", "50ms")
			cmd.Env = append(cmd.Env, "REDIS_PASSWORD="+password)
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			require.NoError(t, err)
			defer out.Close()
			cmd.Stdout, cmd.Stderr = out, out
			said := func() string {
				text, _ := os.ReadFile(out.Name())
				return string(text)
			}
			// says waits until the program has printed text n times since from.
			says := func(from int, text string, n int) {
				require.Eventually(t, func() bool { return strings.Count(said()[from:], text) >= n }, time.Minute, 10*time.Millisecond, text)
			}
			require.NoError(t, cmd.Start())
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()

			works := func(rounds int) {
				from := len(said())
				says(from, " report part=4 ", rounds)
				says(from, " load part=4", rounds)
			}
			works(1)
			host, err := os.Hostname()
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				value := clients[n-1].Get(ctx, "report").Val() + clients[n-1].Get(ctx, "load").Val()
				return strings.Contains(value, " production@"+host)
			}, time.Minute, time.Millisecond)
			if n > 1 {
				servers[0].Kill()
				works(2)
				servers[1].Kill()
				servers[1].Restart()
				works(2)
				says(0, "redsync: node is down", 1)
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, <-done, said())
			assert.NotContains(t, said(), " ERROR ", said())
			assert.NotContains(t, said(), "lock is lost", said())
			for _, client := range clients[n/5:] {
				left, err := client.Exists(ctx, "report", "load").Result()
				require.NoError(t, err)
				assert.Zero(t, left, client)
			}
		})
	}
}

// Without -nodes the program works on nodes inside its process, and says so.
func TestWithoutNodesItLocksInsideItsProcess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := program(ctx, "-step", "10ms", "-expiry", "1m")
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var text strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if text.WriteString(lines.Text()); strings.Contains(lines.Text(), "load part=4") {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	require.NoError(t, cmd.Wait(), text.String())
	assert.Contains(t, text.String(), "there is no -nodes")
	assert.NotContains(t, text.String(), " ERROR ")
}

// Without a majority the program ends at once, and names each node.
func TestNoMajorityEndsTheProgram(t *testing.T) {
	t.Parallel()
	text, err := program(t.Context(), "-nodes", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").CombinedOutput()
	require.Error(t, err)
	for _, address := range []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "0 of 3 nodes answered"} {
		assert.Contains(t, string(text), address)
	}
}
