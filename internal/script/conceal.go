package script

import (
	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// Conceal cuts off the text of err, a node's error to c, before the first argument of c that is no key. Errors go to
// logs, and anybody with the value of a lock can release it.
func (c Command) Conceal(err error) error {
	keys, secrets := c.split()
	if len(secrets) == 0 {
		return err
	}
	text := err.Error()
	before := foreign.Before(text, secrets, keys)
	if before == text {
		return err
	}
	return wire.Reworded(err, before)
}

// split returns the keys of c, and its other texts without a script's source or SHA1.
func (c Command) split() (keys, secrets []string) {
	if len(c.Args) < 3 {
		return nil, nil
	}
	first, end := 1, 2
	if n, isScript := c.Args[2].(int); isScript {
		first, end = 3, 3+n
	}
	for i, arg := range c.Args[first:] {
		if text, is := arg.(string); is && first+i < end {
			keys = append(keys, text)
		} else if is {
			secrets = append(secrets, text)
		}
	}
	return keys, secrets
}
