package alarm

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
)

// call makes a function a firer.
type call func(closing bool)

func (c call) Fire(closing bool) { c(closing) }

func TestScheduleMovesAndDropsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Schedule
		start := time.Now()
		fired := map[string]time.Duration{}
		note := func(name string) *Alarm {
			return &Alarm{What: call(func(bool) { fired[name] = time.Since(start) })}
		}
		sooner, later, dropped := note("sooner"), note("later"), note("dropped")
		s.Set(sooner, start.Add(time.Minute))
		s.Set(later, start.Add(time.Second))
		s.Set(dropped, start.Add(2*time.Second))
		s.Set(sooner, start.Add(3*time.Second))
		s.Set(later, start.Add(time.Hour))
		s.Drop(dropped)
		s.Drop(dropped) // not scheduled any more: nothing happens
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, map[string]time.Duration{"sooner": 3 * time.Second, "later": time.Hour}, fired)
	})
}

func TestScheduleHurriesTheAlarmsThatAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Schedule
		start := time.Now()
		fired := make([]time.Duration, 10)
		even := map[Firer]bool{}
		for i := range fired {
			a := &firer{func() { fired[i] = time.Since(start) }}
			even[a] = i%2 == 0
			s.Set(&Alarm{What: a}, start.Add(time.Duration(10-i)*time.Minute))
		}
		time.Sleep(time.Second)
		s.Hurry(func(f Firer) bool { return even[f] })
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, at := range fired {
			want := time.Second
			if i%2 == 1 {
				want = time.Duration(10-i) * time.Minute
			}
			assert.Equal(t, want, at, "alarm %d", i)
		}
	})
}

// Hasten makes an alarm due at once if its time is after a given one, and changes nothing else.
func TestScheduleHastensWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Schedule
		start := time.Now()
		fired := map[string]time.Duration{}
		set := func(name string, after time.Duration) *Alarm {
			a := &Alarm{What: call(func(bool) { fired[name] = time.Since(start) })}
			s.Set(a, start.Add(after))
			return a
		}
		sooner, same, later := set("sooner", time.Minute), set("same", 5*time.Minute), set("later", 5*time.Minute+1)
		set("another", time.Hour)
		dropped := set("dropped", time.Hour)
		s.Drop(dropped)
		time.Sleep(time.Second)
		for _, a := range []*Alarm{sooner, same, later, dropped} {
			s.Hasten(a, start.Add(5*time.Minute))
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, map[string]time.Duration{
			"sooner": time.Minute, "same": 5 * time.Minute, "later": time.Second, "another": time.Hour,
		}, fired)
	})
}

// A firer is a call that can be compared.
type firer struct{ call func() }

func (f *firer) Fire(bool) { f.call() }

func TestScheduleClosedFiresTheRestAtOnceAndTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Schedule
		last := 0
		for range 10 {
			s.Set(&Alarm{What: call(func(closing bool) {
				if closing {
					last++
				}
			})}, time.Now().Add(time.Hour))
		}
		s.Close()
		assert.Equal(t, 10, last)
		assert.False(t, s.Set(&Alarm{What: call(func(bool) { t.Error("fired") })}, time.Now()))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, 10, last)
	})
}

func TestSchedulePausesAfterABurstThoughAlarmsSetThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Schedule{InARow: 4}
		start := time.Now()
		fired, want := map[time.Duration]int{}, map[time.Duration]int{}
		for i := range 40 {
			a := &Alarm{}
			a.What = call(func(closing bool) {
				if !closing {
					fired[time.Since(start)]++
					s.Set(a, time.Now().Add(time.Hour))
				}
			})
			s.Set(a, start.Add(time.Second))
			want[time.Second+time.Duration(i/4)*burstPause]++
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, want, fired)
		s.Close()
	})
}

func TestScheduleComparesClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := clocktest.StepWall(t)
		var s Schedule
		start := time.Now()
		var fired []time.Duration
		note := &Alarm{}
		note.What = call(func(bool) {
			fired = append(fired, time.Since(start))
			s.Set(note, time.Now().Add(time.Hour))
		})
		s.CompareClocks(time.Millisecond, clock.Now()) // no alarm is set, so this has no effect
		s.Set(note, time.Now().Add(time.Hour))
		s.CompareClocks(time.Second, clock.Now())
		s.CompareClocks(100*time.Millisecond, clock.Now())
		s.CompareClocks(time.Minute, clock.Now()) // the shortest interval counts
		time.Sleep(time.Second + time.Millisecond)
		for _, by := range []time.Duration{
			0, 999 * time.Microsecond, time.Microsecond, time.Hour, // with the third the clock has gained a millisecond
			-time.Hour, time.Millisecond,
		} {
			wall.Step(by)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if !assert.Len(t, fired, 3) {
			return
		}
		for i, after := range []time.Duration{3 * time.Second, 4 * time.Second, 6 * time.Second} {
			assert.Equal(t, after+100*time.Millisecond, fired[i])
		}
		s.Drop(note)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, s.compare, "nothing to compare for")
		wall.Step(time.Hour)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Len(t, fired, 3)
	})
}

// Comparisons that are rarer than the alarms delay no alarm.
func TestScheduleFiresBetweenComparisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Schedule
		start := time.Now()
		var fired []time.Duration
		note := &Alarm{}
		note.What = call(func(bool) {
			if fired = append(fired, time.Since(start)); len(fired) < 3 {
				s.Set(note, time.Now().Add(time.Second))
			}
		})
		s.Set(note, start.Add(time.Second))
		s.CompareClocks(time.Minute, clock.Now())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, fired)
	})
}

// A schedule keeps nothing of an alarm that is off it in memory.
func TestScheduleForgetsDroppedAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Schedule
		defer s.Close()
		dropped := func() weak.Pointer[Alarm] {
			a := &Alarm{What: call(func(bool) { t.Error("fired") })}
			s.Set(a, time.Now().Add(time.Hour))
			s.Drop(a)
			return weak.Make(a)
		}()
		runtime.GC()
		assert.Nil(t, dropped.Value())
	})
}

func TestScheduleWithoutComparisonGoesByTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := clocktest.StepWall(t)
		var s Schedule
		start := time.Now()
		var fired time.Duration
		s.Set(&Alarm{What: call(func(bool) { fired = time.Since(start) })}, start.Add(time.Minute))
		wall.Step(time.Hour)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, time.Minute, fired)
	})
}
