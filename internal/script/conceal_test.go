package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// What servers and proxies write about a command, %s being what they repeat of it.
var textsOfServers = []string{
	"NOSCRIPT No matching script. Please use EVAL.", "ERR unknown command `evalsha`, with args beginning with: %s",
	"NOPERM this user has no permissions to run the 'evalsha' command, which was %s", "ACL failure in script: %s",
	"ERR The user executing the script can't access %s", "ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: WRONGTYPE %s",
	"WRONGTYPE the key lock is a list", "ERR the queue {lock}:queue is a string that is too long", "CROSSSLOT %s", "OOM %s", "%s",
}

// No text has a piece of the value of a lock, whatever a server writes around it and in whichever form.
func FuzzConceal(f *testing.F) {
	for i, value := range []string{
		"c2VjcmV0IGFuZCByYW5kb20=", "secret", "user", "lock", "key", "of 16 or more...", "\"in\" \\quotes\\", "\x00\xff\u202e\n", "lock is a list, perhaps",
	} {
		for text := range textsOfServers {
			f.Add(value, uint8(text), uint8(i), "'", " and more")
		}
	}
	f.Fuzz(func(t *testing.T, value string, text, form uint8, before, after string) {
		forms := []func(string) string{
			func(s string) string { return s }, func(s string) string { return s[:min(len(s), 128)] },
			func(s string) string { return fmt.Sprintf("%q", s) }, func(s string) string { return fmt.Sprintf("%+q", s) },
			func(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) },
		}
		echoed := forms[int(form)%len(forms)](value)
		whole := refusal(strings.ReplaceAll(textsOfServers[int(text)%len(textsOfServers)], "%s", before+echoed+after))
		lock := lockOf(value)
		for _, c := range []Command{Acquire(lock, ttl), Valid(lock), Release(lock, noProcess, noTurn, noFence)} {
			err := c.Conceal(whole)
			shown := strings.TrimSuffix(err.Error(), "...")
			require.True(t, strings.HasPrefix(whole.Error(), shown))
			for at := 0; at+8 <= len(value); at++ {
				piece := value[at : at+8]
				if i := strings.Index(shown, piece); i >= 0 && !strings.Contains("lock {lock}:queue", piece) {
					require.True(t, foreign.IsOrdinary(whole.Error(), i, i+8), "%q in %q", piece, shown)
				}
			}
			other := errors.New(whole.Error())
			require.EqualError(t, c.Conceal(other), err.Error())
			require.ErrorIs(t, c.Conceal(other), other)
		}
	})
}

// The library reads the same in a text that ends before the value.
func TestConcealedTextsSayTheSame(t *testing.T) {
	for _, value := range []string{
		"c2VjcmV0IGFuZCByYW5kb20=", "secret", "user", "script", "list", "lock", "v",
		"executing-7", "7:executing script", "access permissions-7", "WRONGTYPE-7", "CROSSSLOT:1", "NOSCRIPT No matching script!", "Running script (call 7)",
		"unknown command 7", "user_script: 5!", "ACL failure: 7", "no permissions to run the x",
	} {
		for _, text := range textsOfServers[:len(textsOfServers)-1] {
			before := refusal(strings.ReplaceAll(text, "%s", "'"+value+"'"))
			after := Valid(lockOf(value)).Conceal(before)
			for what, is := range map[string]func(error) bool{
				"no script": wire.IsNoScript, "denied": wire.IsDenied, "not run": wire.WasNotRun, "cross slot": wire.IsCrossSlot,
				"wrong type": wire.IsWrongType, "permanent": wire.IsPermanent, "refusal": wire.IsRefusal, "no memory": wire.IsOutOfMemory,
			} {
				require.Equal(t, is(before), is(after), "%s: %q, %q", what, before, after)
			}
			require.Equal(t, WrongTypeIn(before.Error()), WrongTypeIn(after.Error()))
			if len(value) > 4 && value != "script" {
				require.NotContains(t, after.Error(), value)
			}
			if strings.Contains(text, "the key lock") {
				require.Contains(t, after.Error(), "the key lock is a list")
			}
		}
	}
}
