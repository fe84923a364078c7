package pool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// These functions are called for every reply, and nearly all replies have no error.
func TestNoErrorCostsNoAllocation(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if IsNoScript(nil) || IsDenied(nil) || IsCrossSlot(nil) || IsWrongType(nil) || IsRefusal(nil) || IsPermanent(nil) {
			t.Error("a function takes nil for an error of the node")
		}
	}))
}

func TestRecoveredKeepsErrors(t *testing.T) {
	failing := errors.New("failing")
	for _, r := range []any{failing, "failing"} {
		err := func() (err error) {
			defer recovered(&err)
			panic(r)
		}()
		require.EqualError(t, err, "failing")
		if r == failing { //nolint:errorlint // the value itself
			require.ErrorIs(t, err, failing)
		}
	}
}

// Servers say in different words why a script ended, and Redis 6.2 begins with the place. The texts are those of Redis
// 6.2.16, 7.0.15 and 8.0.6; Valkey has those of 8.0.6.
func TestErrorsOfScripts(t *testing.T) {
	const failed = "ERR Error running script (call to f_513e4d2b09ac94a20eda5241fb6fd25dbd17e297): "
	const denied = "The user executing the script can't run this command or subcommand"
	const oom = "-OOM command not allowed when used memory > 'maxmemory'."
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for text, is := range map[string]func(error) bool{
		failed + "@user_script:57: @user_script: 57: " + denied:  IsDenied, // call
		"@user_script: 57: " + denied:                            IsDenied, // pcall, and the script returned it
		"ERR " + denied + " script: f_513e, on @user_script:57.": IsDenied,
		"ERR ACL failure in script: User locker has no permissions to run the 'time' command script: 513e, on @user_script:57.": IsDenied,
		"ERR ACL failure in script: No permissions to access a key":                                                             IsDenied,
		failed + "@user_script:57: @user_script: 57: " + oom:                                                                    IsOutOfMemory,
		"@user_script: 57: " + oom:               IsOutOfMemory,
		failed + "@user_script:57: " + wrongType: IsWrongType,
	} {
		err := refusal(text)
		require.True(t, is(err), text)
		permanent := !IsOutOfMemory(err)
		require.Equal(t, permanent, IsPermanent(err), text)
		require.False(t, WasNotRun(err), text)
		require.False(t, is(&unanswered{text, err}), text)
	}
	for _, text := range []string{
		failed, "@user_script:", failed + "@user_script:57: ", failed + "@user_script:57: NOSCRIPT", failed + "@user_script:57: ERR " + denied,
		"ERR " + oom, "ERR x @user_script:57: " + denied,
	} {
		err := refusal(text)
		require.False(t, IsDenied(err) || IsOutOfMemory(err) || IsWrongType(err) || IsPermanent(err) || IsNoScript(err) || WasNotRun(err), text)
	}
}

// A node may repeat a password in an answer to the greeting, and the arguments of any command that it does not know.
func TestNoTextOfANodeShowsAPassword(t *testing.T) {
	given := &credentials{password: "of a provider"}
	for text, want := range map[string]string{
		"WRONGPASS not 'hunter2', please":                           "the client's user name or password is wrong: WRONGPASS not ...",
		"WRONGPASS not \"of a prov":                                 "the client's user name or password is wrong: WRONGPASS not ...",
		"ERR unknown command 'AUTH', with args beginning with: 'x'": "ERR unknown command 'AUTH'",
		"WRONGPASS the hunter is gone":                              "the client's user name or password is wrong: WRONGPASS the hunter is gone",
	} {
		require.EqualError(t, hintedWithout(refusal(said(text)), "hunter2", given), want)
	}
	require.NoError(t, hintedWithout(nil, "hunter2", nil))
}
