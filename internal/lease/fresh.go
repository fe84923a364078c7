package lease

import (
	"errors"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// newValue returns the value of an attempt that begins at start. A user's function may return one again: see valueLog.
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
	return value, nil
}

var errNoValue = errors.New(
	`redsync: WithGenValueFunc returned a value that begins with "readers\n", or with WithShared has a line feed: no value may`)
