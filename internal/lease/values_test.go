package lease

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValueLogFindsRepetitionsAmongTheLastValues(t *testing.T) {
	var l valueLog
	assert.NoError(t, l.claim("a"))
	assert.NoError(t, l.claim("b"))
	assert.ErrorContains(t, l.claim("a"), "returned a value that it has returned before")
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
