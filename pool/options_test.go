package pool

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An option that is out of its range is the error of everything. One in its range sets what wire reads.
func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	long, constant := strings.Repeat("x", 128), time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	soon, later := time.Now().Round(0).Add(59*time.Second), time.Now().Round(0).Add(2*time.Minute)
	now, before := time.Now(), time.Now().Add(-time.Hour)
	const noControls, monotonic = " is out of range: 1 to 128 bytes without control characters", " has a monotonic clock reading, as time.Now returns it: " +
		"give a fixed moment, such as time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), or a stored one"
	for name, c := range map[string]struct {
		option Option
		sets   config
		err    string
	}{
		"nil":               {nil, config{}, "nil Option"},
		"outstanding 0":     {WithOutstanding(0), config{}, "WithOutstanding(0) is out of range: 1 to 16384"},
		"outstanding 1":     {WithOutstanding(1), config{Outstanding: 1}, ""},
		"outstanding 16384": {WithOutstanding(16384), config{Outstanding: 16384}, ""},
		"outstanding 16385": {WithOutstanding(16385), config{}, "WithOutstanding(16385) is out of range: 1 to 16384"},
		"guard 0":           {WithRestartGuard(0), config{}, "WithRestartGuard(0s) is out of range: more than 0"},
		"guard negative":    {WithRestartGuard(-time.Second), config{}, "WithRestartGuard(-1s) is out of range: more than 0"},
		"guard":             {WithRestartGuard(1), config{Guard: 1}, ""},
		"before zero":       {WithNoLocksBefore(time.Time{}), config{}, ""},
		"before constant":   {WithNoLocksBefore(constant), config{NoLocksBefore: constant}, ""},
		"before a minute":   {WithNoLocksBefore(soon), config{NoLocksBefore: soon}, ""},
		"before two":        {WithNoLocksBefore(later), config{}, "WithNoLocksBefore(" + later.String() + ") is out of range: at most a minute ahead of the clock"},
		"before now":        {WithNoLocksBefore(now), config{}, "WithNoLocksBefore(" + now.String() + ")" + monotonic},
		"before, relative":  {WithNoLocksBefore(before), config{}, "WithNoLocksBefore(" + before.String() + ")" + monotonic},
		"name":              {WithName("a"), config{Name: "a"}, ""},
		"name, spaces":      {WithName("Köln, 2. Stock"), config{Name: "Köln, 2. Stock"}, ""},
		"name, longest":     {WithName(long), config{Name: long}, ""},
		"name, empty":       {WithName(""), config{}, `WithName("")` + noControls},
		"name, too long":    {WithName(long + "x"), config{}, `WithName("` + long + `x")` + noControls},
		"name, much":        {WithName(strings.Repeat("x", 1000)), config{}, `WithName("` + strings.Repeat("x", 300) + `... (1000 bytes)")` + noControls},
		"name, newline":     {WithName("a\nb"), config{}, `WithName("a\nb")` + noControls},
		"name, next line":   {WithName("\u0085"), config{}, `WithName("\u0085")` + noControls},
		"identity":          {WithoutIdentity(), config{Anonymous: true}, ""},
		"hooks":             {WithoutHooks(), config{HooksAreKnown: true}, ""},
		"via client":        {ViaClient(), config{ViaClient: true}, ""},
	} {
		if c.err == "" {
			require.Equal(t, c.sets, configOf([]Option{c.option}), name)
			continue
		}
		for _, p := range []Pool{New(client, c.option, WithName("a")), Func(answering("PONG"), c.option, WithName("a"))} {
			err := p.(wire.Failing).Err()
			require.EqualError(t, err, "pool: "+c.err, name)
			require.Equal(t, err, Ping(t.Context(), p), name)
			require.NotContains(t, err.Error(), "\n")
		}
	}
}

// answering is a function whose node answers with value.
func answering(value any) func(context.Context, ...any) (any, error) {
	return func(context.Context, ...any) (any, error) { return value, nil }
}
