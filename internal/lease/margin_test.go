package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A node that has restarted is distrusted for longer where there are tokens: by as much as clocks of clients
// may differ, and by the time that an attempt takes, which may be repeated for its token.
func TestMarginIsForTokensAlone(t *testing.T) {
	terms := Terms{Timing: Timing{NodeTimeout: 400 * time.Millisecond}}
	assert.Zero(t, terms.margin())
	terms.Fencing = true
	assert.Equal(t, 10*time.Second+3*400*time.Millisecond, terms.margin())
	assert.Equal(t, fenceSkew+(1+maxCatchUps)*terms.Timing.NodeTimeout, terms.margin())
}
