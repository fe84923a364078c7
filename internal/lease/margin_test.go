package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// With fencing, a node that has restarted is distrusted for longer: by as much as the clocks of clients may
// differ, and by the time that an attempt takes, including its extra rounds for a token.
func TestMarginIsForTokensAlone(t *testing.T) {
	terms := Terms{Policy: &Policy{Timing: Timing{NodeTimeout: 400 * time.Millisecond}}}
	assert.Zero(t, terms.margin())
	terms.Fencing = true
	assert.Equal(t, 10*time.Second+3*400*time.Millisecond, terms.margin())
	assert.Equal(t, fenceSkew+(1+maxCatchUps)*terms.Timing.NodeTimeout, terms.margin())
}
