package script_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tests what enter and release do with the fencing register of a lock, on one node.

const (
	day   = 24 * 60 * 60 * 1000 // milliseconds
	fence = "{lock}:fence"
)

func token(n uint64) script.Fence { return script.Fence{Token: n, TTL: day} }

// enters runs the script that enters, with a fence and the name of a ticket ("" for none), and returns its parsed reply.
func (g ground) enters(value, name string, strict bool, f script.Fence) script.Entered {
	g.Helper()
	place := script.Place{Alive: alive, Strict: strict}
	if name != "" {
		place.Ticket = script.TicketOf(ticketOf(name))
	}
	reply := g.do(script.Enter(script.NewLock("lock", value), ttl, place, f).InFull()...)
	g.expires()
	entered, err := script.ParseEntered(reply)
	require.NoError(g, err)
	return entered
}

// register sets the register to n, for a minute, unless n is "".
func (g ground) register(n string) {
	if n != "" {
		g.do("set", fence, n, "px", ttl)
	}
}

// isAt checks that the register is at n, and lasts for a day from now.
func (g ground) isAt(n string) {
	g.Helper()
	assert.Equal(g, n, g.do("get", fence))
	assert.InDelta(g, day, g.do("pttl", fence), 5000)
}

// registers are cases of enter: which token raises which register.
var registers = map[string]struct {
	register string
	token    uint64
	raised   bool
}{
	"none":                           {"", 7, true},
	"none, the least token":          {"", 1, true},
	"lower":                          {"6", 7, true},
	"equal":                          {"7", 7, false},
	"higher":                         {"8", 7, false},
	"shorter, though later as text":  {"9", 10, true},
	"longer, though earlier as text": {"10", 9, false},
	"much longer":                    {"1763000000000000", 999, false},
	"beyond 2^53, by one":            {"9007199254740992", 9007199254740993, true},
	"beyond 2^53, equal":             {"9007199254740993", 9007199254740993, false},
	"beyond 2^53, below by one":      {"9007199254740993", 9007199254740992, false},
	"the last but one":               {"18446744073709551614", math.MaxUint64, true},
	"the last":                       {"18446744073709551615", math.MaxUint64, false},
	"the last, one less":             {"18446744073709551615", math.MaxUint64 - 1, false},
	"the first of its length":        {"99999", 100000, true},
	"the same but for the end":       {"123456789012345", 123456789012346, true},
}

func TestEnterRaisesTheRegister(t *testing.T) {
	for name, c := range registers {
		for _, line := range []string{"", "us1"} {
			for _, wasThere := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, ticket %q, there before %v", name, line, wasThere), func(t *testing.T) {
					onBoth(t, func(g ground) {
						g.register(c.register)
						if wasThere {
							g.do("set", "lock", "v", "px", 5000)
						}
						want := script.Entered{Wait: script.Granted, Stored: c.raised, WasThere: wasThere}
						left := c.register
						if c.raised {
							left = fmt.Sprint(c.token)
						}
						_, err := fmt.Sscan(left, &want.Register)
						require.NoError(t, err)
						assert.Equal(t, want, g.enters("v", line, true, token(c.token)))
						g.isAt(left)
						assert.Equal(t, "v", g.do("get", "lock"))
						if wasThere {
							assert.LessOrEqual(t, g.do("pttl", "lock"), int64(5000), "it is not prolonged")
						} else {
							assert.InDelta(t, ttl, g.do("pttl", "lock"), 5000)
						}
						assert.Equal(t, line, g.lined(queueKey))
						assert.Empty(t, g.do("keys", "*:fence:*"))
					})
				})
			}
		}
	}
}

// If enter does not grant the lock, it returns the register, but does not change it.
func TestEnterLeavesTheRegisterOfALockThatItDoesNotGet(t *testing.T) {
	for name, c := range map[string]struct{ lock, line, ticket, register string }{
		"taken":                        {"w", "", "", "5"},
		"taken, a ticket, no register": {"w", "", "us1", ""},
		"behind another process":       {"", "they1", "us2", "5"},
		"behind another, a higher one": {"", "they1", "us2", "12"},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				if c.lock != "" {
					g.do("set", "lock", c.lock, "px", ttl)
				}
				g.line(queueKey, c.line)
				g.register(c.register)
				e := g.enters("v", c.ticket, true, token(7))
				assert.InDelta(t, ttl, e.Wait, 5000)
				assert.False(t, e.Stored)
				assert.False(t, e.WasThere)
				if c.register == "" {
					assert.Zero(t, e.Register)
					assert.Nil(t, g.do("get", fence))
					return
				}
				assert.Equal(t, c.register, fmt.Sprint(e.Register))
				assert.Equal(t, c.register, g.do("get", fence))
				assert.LessOrEqual(t, g.do("pttl", fence), int64(ttl), "only a use keeps it")
			})
		})
	}
}
