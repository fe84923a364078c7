package stall_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
)

// A fake is a test that records how it ends. Its Fatalf and Skipf end the goroutine, as those of a test do.
type fake struct {
	testing.TB
	ended string
}

func (f *fake) Helper()             {}
func (f *fake) Logf(string, ...any) {}
func (f *fake) Fatalf(string, ...any) {
	f.ended = "failed"
	panic(f)
}

func (f *fake) Skipf(string, ...any) {
	f.ended = "skipped"
	panic(f)
}

// No machine stands still in a bubble: with 0 each does.
func TestReplay(t *testing.T) {
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		play  func(i int) error // the play number i, from 1 on
		least time.Duration
		plays int
		ended string
	}{
		"nothing is wrong":    {func(int) error { return nil }, 0, 1, ""},
		"wrong":               {func(int) error { time.Sleep(time.Minute); return wrong }, time.Millisecond, 1, "failed"},
		"stalls excuse twice": {func(i int) error { return map[bool]error{true: wrong}[i < 3] }, 0, 3, ""},
		"stalls in each play": {func(int) error { return wrong }, 0, 20, "skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, plays := &fake{TB: t}, 0
				func() {
					defer func() {
						if f.ended != "" {
							_ = recover()
						}
					}()
					stall.Replay(f, c.least, func() error { plays++; return c.play(plays) })
				}()
				assert.Equal(t, c.ended, f.ended)
				assert.Equal(t, c.plays, plays)
			})
		})
	}
}

func TestWithinCountsLittleOfAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		waited, ok := stall.Within(time.Second, func() bool { looks++; time.Sleep(time.Hour); return looks == 5 })
		assert.True(t, ok)
		assert.Equal(t, 5*stall.LongestLook, waited)
		begin := time.Now()
		waited, ok = stall.Within(time.Second, func() bool { return false })
		assert.False(t, ok)
		assert.Equal(t, time.Second, waited)
		assert.Equal(t, time.Second, time.Since(begin))
	})
}
