package lease

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Watchdogs that wait go on in the order in which their validities end.
func TestPacerLetsTheEarliestEndGoOnFirst(t *testing.T) {
	var waiting earliest
	var pushed, popped []time.Duration
	for range 1000 {
		ends := rand.N(time.Minute)
		pushed = append(pushed, ends)
		heap.Push(&waiting, paced{nil, ends, 0})
		if rand.N(3) == 0 {
			popped = append(popped, heap.Pop(&waiting).(paced).ends)
			for _, p := range waiting {
				assert.LessOrEqual(t, popped[len(popped)-1], p.ends)
			}
		}
	}
	for len(waiting) > 0 {
		popped = append(popped, heap.Pop(&waiting).(paced).ends)
	}
	slices.Sort(pushed)
	slices.Sort(popped)
	assert.Equal(t, pushed, popped)
}
