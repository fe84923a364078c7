package redsync

import (
	"fmt"
	"math"
	"math/big"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// The parsers and the arithmetic of this package. From outside: fuzz_nodes_test.go.

// anyReply makes what a node may answer: of every type that a pool gives, and of others.
func anyReply(shape uint8, n, done int64, text string) any {
	return []any{
		nil, n, text,
		[]any{n, text, done},
		"OK",
		[]any{},
		[]any{n},
		[]any{text, text, done},
		[]any{n, text, nil},
		[]any{n, text, done, done},
		true, float64(n), []byte(text), int(n),
		[]string{text},
		struct{}{},
	}[shape%16]
}

func addReplies(f *testing.F) {
	f.Helper()
	for shape := range uint8(16) {
		for _, n := range []int64{0, 1, 2, 3, 5, 9, 25, 29, 32, 33, -1, -27, 1 << 32, math.MinInt64, math.MinInt64 + 1} {
			f.Add(shape, n, n&3, "7", shape)
		}
	}
	f.Add(uint8(2), int64(0), int64(0), "QUEUED", uint8(0))
	f.Add(uint8(2), int64(0), int64(0), "PONG", uint8(3))
	f.Add(uint8(3), int64(0), int64(1), "18446744073709551616", uint8(1))
	f.Add(uint8(3), int64(0), int64(3), "18446744073709551615", uint8(5))
	f.Add(uint8(3), int64(0), int64(2), "9", uint8(1))
}

// Whatever a node answers is a grant only where it is word for word what grants; refuses
// only where it is what refuses; and is an error of the node else. Each command has a reader of
// its own: what grants a plain SET says nothing to a script.
func FuzzVotes(f *testing.F) {
	addReplies(f)
	register := regexp.MustCompile(`^[0-9]+$`)
	f.Fuzz(func(t *testing.T, shape uint8, n, done int64, text string, how uint8) {
		value := anyReply(shape, n, done, text)
		reply := pool.Reply{Value: value, Fate: pool.Answered, Conn: 1}
		fences, queues, sentBefore := how&1 != 0, how&2 != 0, how&4 != 0

		h := testHold(t, 1, at(0, 0))
		h.core.nodes[0] = newNode(0, nil)

		// A script that looks for a value: what it found, and flags.
		want := failed
		if found, ok := value.(int64); ok && found >= 0 && found < 32 {
			want = []choice{refused, granted, refused, refused}[found%4]
		}
		v := read(h.claim.Check(), reply)
		require.Equal(t, want, v.choice, "%v", value)
		checkVote(t, h.core.nodes[0], v)

		// An acquire.
		if fences {
			h.tokens = &tokens{known: &knownTokens{}, name: "lock", timing: h.timing, proposal: 7}
		}
		h.sending(0)
		if sentBefore {
			h.sending(0)
		}
		var place script.Place
		if queues {
			place.Ticket = "ticket"
		}
		want = failed
		parts, _ := value.([]any)
		switch {
		case !fences && !queues && value == nil:
			want = refused
		case !fences && !queues && value == any("OK"):
			want = granted
		case !fences && !queues: // odd for a SET
		case shape%16 == 1 && n == 0 && !fences:
			want = granted
		case shape%16 == 1: // it refuses, or says nothing of the token
			want = refused
		case shape%16 == 3 && register.MatchString(text):
			if token, _ := new(big.Int).SetString(text, 10); token.IsUint64() {
				want = refused
				if parts[0] == int64(0) && (done&2 == 0 || sentBefore) && (done&1 != 0 || !fences) {
					want = granted
				}
			}
		}
		a := acquire{hold: h}
		v = a.judge(0, reply, read(a.from(place).call, reply))
		require.Equal(t, want, v.choice, "%v", value)
		checkVote(t, h.core.nodes[0], v)
	})
}

func checkVote(t *testing.T, n *node, v vote) {
	t.Helper()
	err := n.explain(v)
	require.Equal(t, v.choice == granted, err == nil)
	if v.choice == failed {
		var node *RedisError
		require.ErrorAs(t, err, &node)
	}
}

// exact returns d * factor with all its digits.
func exact(d time.Duration, factor float64) *big.Float {
	x := new(big.Float).SetPrec(200).SetInt64(int64(d))
	return x.Mul(x, new(big.Float).SetFloat64(factor))
}

// Whatever the settings are: an error that names an option, or times that keep their
// promises, which are computed once more without overflow and rounding.
func FuzzTiming(f *testing.F) {
	const day = int64(24 * time.Hour)
	f.Add(int64(8*time.Second), 0.01, 0.05, int64(0), int64(0), int64(0), int64(0))
	f.Add(int64(3*time.Millisecond), 0.01, 1.0, int64(0), int64(1), int64(1), int64(5))
	f.Add(int64(math.MaxInt64), 0.0, 1.0, int64(0), int64(0), int64(0), int64(math.MaxInt64))
	f.Add(int64(math.MaxInt64), math.Nextafter(1, 0), 1.0, int64(0), int64(0), int64(0), int64(0))
	f.Add(int64(time.Second), 0.5, 0.5, int64(time.Millisecond), int64(math.MaxInt64), day, int64(-1))
	f.Add(int64(math.MaxInt64-1), 0.3, 0.9, int64(math.MaxInt64/4), int64(math.MinInt64), int64(1), int64(math.MinInt64))
	f.Add(int64(math.MinInt64), math.NaN(), math.Inf(1), int64(-1), int64(-1), int64(-1), int64(0))
	f.Add(day, 0.9999999999, 1e-300, int64(0), day, 3*day, 2*day)
	f.Fuzz(func(t *testing.T, expiry int64, drift, factor float64, node, delay, maxHold, held int64) {
		b := bases{time.Duration(expiry), drift, factor, time.Duration(node), time.Duration(delay), time.Duration(maxHold)}
		got, err := b.derive()
		if err != nil {
			require.ErrorIs(t, err, errOutOfRange)
			require.Regexp(t, `^redsync: With[A-Z]`, err.Error())
			require.Zero(t, got)
			return
		}
		require.True(t, drift >= 0 && drift < 1 && factor > 0 && factor <= 1 && maxHold >= 0 && delay >= 0 && node >= 0)
		require.Equal(t, b.expiry/time.Millisecond, got.expiry/time.Millisecond)
		require.Zero(t, got.expiry%time.Millisecond)

		require.Positive(t, got.span)
		// expiry * (1 - drift) - 2 ms; a float has 53 bits.
		most := new(big.Float).SetInt64(int64(got.expiry - clockDrift))
		most.Sub(most, exact(got.expiry, drift))
		slack := exact(got.expiry, 0x1p-52)
		span := new(big.Float).SetInt64(int64(got.span))
		require.LessOrEqual(t, span.Cmp(most.Add(most, slack)), 0, "span %v of %v, drift %v", got.span, got.expiry, drift)

		ttl := new(big.Int).Add(big.NewInt(delay), big.NewInt(999_999))
		ttl.Add(ttl.Div(ttl, big.NewInt(1e6)).Mul(ttl, big.NewInt(1e6)), big.NewInt(int64(got.expiry)))
		require.True(t, ttl.IsInt64() && ttl.Int64() == int64(got.ttl), "%v, want %v", int64(got.ttl), ttl)
		require.GreaterOrEqual(t, got.nodeTimeout, time.Duration(0))
		require.LessOrEqual(t, got.nodeTimeout, got.span/2)

		// However long the lock has been held, the keys outlast the validity by the drift.
		if held >= 0 {
			ttl, span := got.atAge(time.Duration(held))
			require.GreaterOrEqual(t, span, time.Duration(0))
			require.LessOrEqual(t, span, got.span)
			require.GreaterOrEqual(t, ttl-span, got.ttl-got.span)
			require.LessOrEqual(t, ttl, got.ttl)
			if maxHold > 0 {
				require.LessOrEqual(t, span, max(time.Duration(maxHold-held), 0))
			}
		}
		checkQuarantine(t, got, drift, time.Duration(held))
	})
}

// checkQuarantine looks that a restarted node is distrusted until all that it may have
// forgotten has run out.
func checkQuarantine(t *testing.T, timing timing, drift float64, guard time.Duration) {
	t.Helper()
	if guard <= 0 {
		return
	}
	n := &node{guard: guard}
	for _, tokens := range []*tokens{nil, {timing: timing}} {
		want := new(big.Float).SetInt64(int64(clockDrift + uptimeGranularity))
		want.Add(want, new(big.Float).SetInt64(int64(guard)))
		want.Add(want, exact(guard, drift))
		if tokens != nil {
			want.Add(want, new(big.Float).SetInt64(int64(fenceSkew)))
			want.Add(want, exact(timing.nodeTimeout, 1+maxCatchUps))
		}
		want.Sub(want, exact(guard, 0x1p-52)) // a float has 53 bits
		got := n.quarantine(drift, tokens.margin())
		if want.Cmp(new(big.Float).SetInt64(math.MaxInt64)) >= 0 {
			require.Equal(t, time.Duration(math.MaxInt64), got)
			continue
		}
		require.GreaterOrEqual(t, new(big.Float).SetInt64(int64(got)).Cmp(want), 0, "%v, want %v", got, want)
	}
}

// Whatever is given as an address: a client of it that is as it was meant, or an error; none
// panics, and no error shows the password, which is what stands before the last @ and behind
// the user's name.
func FuzzAddress(f *testing.F) {
	for _, form := range []string{
		"redis://user:%s@host:6379", "rediss://:%s@host", "redis://%s@host:6379/3", "user:%s@host:6379", "%s@host:6379", "unix://user:%s@/path?db=1", "user:%s://x@host:1", "x:%s@a@b",
		"redis://user:%s@host:6379?pool_size=-1", "redis://user:%s@host:6379?pool_size=99999999999&max_idle_conns=99999999999", "redis://user:%s@host:6379/x", "redis://user:%s@host:6379?no=1", "redis://user:%s@[::1", "redis://user:%s@host:port",
		"http://user:%s@host", "redis://user:%s@host:6379?max_active_conns=-99999999999&pipeline_pool_size=99999999999", "redis://user:%s@host:6379?dial_timeout=-1&read_timeout=-5s&db=-1&protocol=9", "://user:%s@host", " redis://user:%s@host", "redis://user:%s@host:6379?min_idle_conns=x", "redis:user:%s@host",
	} {
		before, after, _ := strings.Cut(form, "%s")
		for _, secret := range []string{"SECRET-7", "SECRET%zz", "SECRET@7", "SECRET://7", "SECRET/7?#", "SECRET 7", "SECRET\x00\n"} {
			f.Add(before, secret, after)
		}
	}
	for _, address := range []string{"host:6379", "[::1]:6379", ":6379", "host:", "host", "", "redis://", "redis://?pool_size=-1", "a:b:c", "redis://host:6379/0?db=9999999999999999999"} {
		f.Add(address, "", "")
	}
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		address := before + secret + after
		client, err := newClient(address)
		if err != nil {
			require.Nil(t, client)
			if len(secret) >= 6 && strings.Contains(before, ":") && strings.Contains(after, "@") && !strings.Contains(before+after, secret) {
				quoted := fmt.Sprintf("%q", secret)
				require.NotContains(t, err.Error(), secret)
				require.NotContains(t, err.Error(), quoted[1:len(quoted)-1])
			}
			return
		}
		defer client.Close()
		addr := client.Options().Addr
		if !strings.Contains(address, "://") {
			require.Equal(t, address, addr)
			require.NotContains(t, addr, "@")
		}
		if client.Options().Network != "unix" {
			_, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			require.NotEmpty(t, port)
		}
	})
}
