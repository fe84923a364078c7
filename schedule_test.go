package redsync

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/pool"
)

// call makes a function a firer.
type call func(closing bool)

func (c call) fire(closing bool) { c(closing) }

func TestScheduleFiresInTimeAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s schedule
		start := time.Now()
		var fired []time.Duration
		order := rand.Perm(100)
		for _, i := range order {
			after := time.Duration(i) * time.Second
			s.set(&alarm{what: call(func(bool) { fired = append(fired, time.Since(start)) })}, start.Add(after))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if assert.Len(t, fired, 100) {
			for i, at := range fired {
				assert.Equal(t, time.Duration(i)*time.Second, at)
			}
		}
	})
}

func TestScheduleMovesAndDropsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s schedule
		start := time.Now()
		fired := map[string]time.Duration{}
		note := func(name string) *alarm {
			return &alarm{what: call(func(bool) { fired[name] = time.Since(start) })}
		}
		sooner, later, dropped := note("sooner"), note("later"), note("dropped")
		s.set(sooner, start.Add(time.Minute))
		s.set(later, start.Add(time.Second))
		s.set(dropped, start.Add(2*time.Second))
		s.set(sooner, start.Add(3*time.Second))
		s.set(later, start.Add(time.Hour))
		s.drop(dropped)
		s.drop(dropped) // not scheduled any more: nothing happens
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, map[string]time.Duration{"sooner": 3 * time.Second, "later": time.Hour}, fired)
	})
}

func TestScheduleEventMaySetItselfAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s schedule
		var times int
		var e alarm
		e.what = call(func(bool) {
			if times++; times < 5 {
				s.set(&e, time.Now().Add(time.Second))
			}
		})
		s.set(&e, time.Now().Add(time.Second))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 5, times)
	})
}

func TestScheduleClosedFiresTheRestAtOnceAndTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s schedule
		last := 0
		for range 10 {
			s.set(&alarm{what: call(func(closing bool) {
				if closing {
					last++
				}
			})}, time.Now().Add(time.Hour))
		}
		s.close()
		assert.Equal(t, 10, last)
		assert.False(t, s.set(&alarm{what: call(func(bool) { t.Error("fired") })}, time.Now()))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, 10, last)
	})
}

func TestScheduleKeepsToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s schedule
		defer s.close()
		for i := range 5 {
			assert.Equal(t, i < 3, s.setUnlessFull(&alarm{what: call(func(bool) {})}, time.Now().Add(time.Hour), 3))
		}
	})
}

func TestSchedulePausesAfterABurstThoughAlarmsSetThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule{burst: 4}
		start := time.Now()
		fired, want := map[time.Duration]int{}, map[time.Duration]int{}
		for i := range 40 {
			a := &alarm{}
			a.what = call(func(closing bool) {
				if !closing {
					fired[time.Since(start)]++
					s.set(a, time.Now().Add(time.Hour))
				}
			})
			s.set(a, start.Add(time.Second))
			want[time.Second+time.Duration(i/4)*burstPause]++
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, want, fired)
		s.close()
	})
}

// The nodes are silent, so that each lock is one event and not two.
func TestExtensionsThatAreDueAtOnceAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				return nil, nil
			}
			return yes(req)
		}}
		rs := New(p).With(WithExpiry(9*time.Second), WithWatchdog())
		for i := range 300 {
			require.NoError(t, rs.NewMutex(strconv.Itoa(i)).Lock())
		}
		synctest.Wait()
		before := p.count("evalsha")
		time.Sleep(3 * time.Second)
		for _, want := range []int{128, 256, 300} {
			synctest.Wait()
			assert.Equal(t, want, p.count("evalsha")-before)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, rs.Close(t.Context()))
	})
}

func TestValueLogFindsRepetitionsAmongTheLastValues(t *testing.T) {
	var l valueLog
	assert.NoError(t, l.claim("a"))
	assert.NoError(t, l.claim("b"))
	assert.ErrorContains(t, l.claim("a"), `returned "a" again`)
	for i := range 2 * rememberedValues {
		assert.NoError(t, l.claim(strconv.Itoa(i)))
		if i%rememberedValues == 0 {
			l.keep("b") // in use still
		}
	}
	assert.NoError(t, l.claim("a"), "long ago")
	assert.Error(t, l.claim("b"))
	assert.LessOrEqual(t, len(l.young)+len(l.old), 2*rememberedValues)
}
