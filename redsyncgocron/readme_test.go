package redsyncgocron_test

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

const maxWords = 600

// blocks returns the Go code of the README.
func blocks(t *testing.T) (all []string) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(strings.Fields(string(text))), maxWords)
	for _, part := range strings.Split(string(text), "```go\n")[1:] {
		code, _, found := strings.Cut(part, "```\n")
		require.True(t, found)
		all = append(all, code)
	}
	require.Len(t, all, 2)
	return all
}

// The programs of the README compile as they stand, and run on real servers: two processes of each. If the process that works
// is told to end, it exits with 0, and the other one works.
func TestReadmePrograms(t *testing.T) {
	t.Parallel()
	all := blocks(t)
	head, _, found := strings.Cut(all[0], "\tlocker := ")
	require.True(t, found)
	for name, c := range map[string]struct {
		nodes               int
		program, slow, fast string
	}{
		"locker":  {3, all[0], `"* * * * *", false`, `"* * * * * *", true`},
		"elector": {1, head + all[1], "gocron.DurationJob(time.Minute)", "gocron.DurationJob(time.Second / 4)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			program := replaced(t, c.program, c.slow, c.fast)
			if name == "locker" {
				program = replaced(t, program, "30 * time.Second", "time.Second / 2")
			}
			var addresses []string
			for _, s := range realredis.Start(t, c.nodes) {
				addresses = append(addresses, s.Addr())
			}
			program = replaced(t, program, `[]string{"localhost:7001", "localhost:7002", "localhost:7003"}`, fmt.Sprintf("%#v", addresses))
			binary := built(ctx, t, program)
			first := starts(ctx, t, binary)
			first.works(ctx, t)
			second := starts(ctx, t, binary)
			first.works(ctx, t)
			first.ends(t)
			second.works(ctx, t)
			second.works(ctx, t)
			second.ends(t)
		})
	}
}

// replaced replaces what must be in the program once.
func replaced(t *testing.T, program, before, after string) string {
	require.Equal(t, 1, strings.Count(program, before), before)
	return strings.Replace(program, before, after, 1)
}

func built(ctx context.Context, t *testing.T, program string) (binary string) {
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, source).CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// A worker is a process that runs a program of the README.
type worker struct {
	binary string
	cmd    *exec.Cmd
	lines  chan string // of its log; closed at the end
	worked bool
}

func starts(ctx context.Context, t *testing.T, binary string) *worker {
	w := &worker{binary: binary}
	w.start(ctx, t)
	return w
}

func (w *worker) start(ctx context.Context, t *testing.T) {
	cmd, lines := exec.CommandContext(ctx, w.binary), make(chan string, 1000)
	cmd.SysProcAttr = realredis.EndWithParent()
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(log); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	w.cmd, w.lines = cmd, lines
}

// works waits until the job runs in this process. A program whose Open has ended because the machine is slow is started again,
// as a process manager would.
func (w *worker) works(ctx context.Context, t *testing.T) {
	for starts := 1; ; {
		select {
		case line, ok := <-w.lines:
			if !ok {
				require.False(t, w.worked)
				require.Less(t, starts, 10)
				require.Error(t, w.cmd.Wait())
				w.start(ctx, t)
				starts++
				continue
			}
			if strings.HasSuffix(line, " working") {
				w.worked = true
				return
			}
			t.Log(line) // a slow machine may report that too few nodes have answered in time
		case <-ctx.Done():
			require.Fail(t, "the job does not run")
		}
	}
}

// ends tells the process to end.
func (w *worker) ends(t *testing.T) {
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	var last string
	for line := range w.lines {
		last = line
	}
	require.NoError(t, w.cmd.Wait(), last)
}
