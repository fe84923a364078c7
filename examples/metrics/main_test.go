package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// What is printed is what is served.
func TestThePageIsPrintedAndServed(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(rigtest.Bounded(t))
	defer stop()
	var printed bytes.Buffer
	served := make(chan string, 1)
	require.NoError(t, command(ctx, []string{"-listen", "127.0.0.1:0"}, writer(func(p []byte) {
		at := regexp.MustCompile(`http://\S+`).FindString(string(p))
		if at == "" {
			printed.Write(p)
			return
		}
		go func() {
			defer stop()
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
			if answer, err := http.DefaultClient.Do(request); assert.NoError(t, err) {
				page, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				served <- string(page)
			}
		}()
	})))
	for _, line := range []string{
		`lock_acquire_seconds_count{outcome="acquired"} 2`, `lock_acquire_seconds_count{outcome="taken"} 1`, "lock_lost_total 2", `lock_node_down{node="4"} 1`,
	} {
		assert.Contains(t, printed.String(), "\n"+line+"\n")
	}
	assert.Equal(t, printed.String(), <-served)
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
