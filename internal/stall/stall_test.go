package stall_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/stall"
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

func TestReplayAgainOnlyIfTheMachineStoodStill(t *testing.T) {
	const least = 100 * time.Millisecond
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		play  func(i int) error // the play number i, from 1 on
		look  time.Duration
		plays int
		ended string
	}{
		"nothing is wrong":       {func(int) error { return nil }, 0, 1, ""},
		"wrong":                  {func(int) error { return wrong }, least - 10*time.Millisecond, 1, "failed"},
		"wrong in a long play":   {func(int) error { time.Sleep(time.Minute); return wrong }, 0, 1, "failed"},
		"a stall excuses twice":  {func(i int) error { time.Sleep(2 * least); return map[bool]error{true: wrong}[i < 3] }, 2 * least, 3, ""},
		"each play has a stall":  {func(int) error { time.Sleep(2 * least); return wrong }, 2 * least, 20, "skipped"},
		"right in spite of them": {func(int) error { time.Sleep(2 * least); return nil }, 2 * least, 1, ""},
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
					stall.Replay(f, least, func(w *stall.Watch) error {
						w.Also(func() { time.Sleep(c.look) })
						plays++
						return c.play(plays)
					})
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

func TestTimeoutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := stall.Timeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		<-ctx.Done()
		assert.Equal(t, time.Minute, time.Since(begin))
	})
}
