package script_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tests what extend and heal do on one node.

func TestExtendAndHealShortenNoTTL(t *testing.T) {
	for name, c := range map[string]struct {
		key   any // the value at the lock, nil for none
		left  int // its TTL
		heals bool
		want  int64
		then  any
		lasts int
	}{
		"extend, less than is left": {"v", 2 * ttl, false, script.Mine, "v", 2 * ttl},
		"extend, more than is left": {"v", ttl / 2, false, script.Mine, "v", ttl},
		"extend what is missing":    {nil, 0, false, script.Missing, nil, -2},
		"extend what is another's":  {"w", ttl / 2, false, script.Other, "w", ttl / 2},
		"heal, less than is left":   {"v", 2 * ttl, true, script.Mine, "v", 2 * ttl},
		"heal, more than is left":   {"v", ttl / 2, true, script.Mine, "v", ttl},
		"heal what is missing":      {nil, 0, true, script.Created, "v", ttl},
		"heal what is another's":    {"w", ttl / 2, true, script.Other, "w", ttl / 2},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				if c.key != nil {
					g.do("set", "lock", c.key, "px", c.left)
				}
				command := script.Extend
				if c.heals {
					command = script.Heal
				}
				assert.Equal(t, c.want, g.run(command(script.NewLock("lock", "v"), ttl)))
				assert.Equal(t, c.then, g.do("get", "lock"))
				assert.InDelta(t, c.lasts, g.do("pttl", "lock"), 5000)
			})
		})
	}
}
