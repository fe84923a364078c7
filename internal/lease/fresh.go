package lease

import (
	"errors"
	"hash/maphash"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// usedValues remembers what users' generators returned. The whole process shares it, because several
// Redsyncs may work on the same nodes. Values of the default generator are not remembered.
var usedValues valueLog

// newValue returns a fresh value, for an attempt that begins at start.
func (t *Terms) newValue(start clock.Instant) (string, error) {
	value, err := t.Value()
	switch {
	case err != nil:
		return "", err
	case t.Owner != "":
		return script.OwnedValue(value, t.Keeper.Process, start.Wall, t.Owner), nil
	case !t.UserValues:
		return value, nil
	case value == "":
		return "", errors.New("redsync: WithGenValueFunc returned an empty value")
	case !script.MayBeValue(value, t.Claim.Shares()): // the value is a secret, so the error does not say it
		return "", errNoValue
	}
	return value, usedValues.claim(value)
}

// rememberedValues is how many values a valueLog remembers at least.
const rememberedValues = 1 << 17

// A valueLog detects a generator that repeats itself. It keeps the latest values, however old they are,
// because nothing bounds how long a key or a late release keeps a value in use. It stores hashes of the
// values, in two generations: a full young one becomes the old one.
type valueLog struct {
	mu         sync.Mutex // guards the generations
	young, old map[uint64]struct{}
}

var errUsedAgain = errors.New("redsync: WithGenValueFunc returned a value that it has returned before: every attempt needs a fresh value")

var errNoValue = errors.New(
	`redsync: WithGenValueFunc returned a value that begins with "readers\n", or with WithShared has a line feed: no value may`)

var valueSeed = maphash.MakeSeed()

// claim notes value, or returns an error if value has been noted already.
func (l *valueLog) claim(value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	hash := maphash.String(valueSeed, value)
	_, young := l.young[hash]
	_, old := l.old[hash]
	if young || old {
		return errUsedAgain // without the value, which is a secret
	}
	l.putLocked(hash)
	return nil
}

// keep notes a value that is still in use.
func (l *valueLog) keep(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(maphash.String(valueSeed, value))
}

func (l *valueLog) putLocked(hash uint64) {
	if l.young == nil || len(l.young) >= rememberedValues {
		l.young, l.old = make(map[uint64]struct{}), l.young
	}
	l.young[hash] = struct{}{}
}
