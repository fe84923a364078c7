package wire

import (
	"errors"
	"io"
	"slices"
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
		require.False(t, is(noAnswer("", err)), text)
	}
	for _, text := range []string{
		failed, "@user_script:", failed + "@user_script:57: ", failed + "@user_script:57: NOSCRIPT", failed + "@user_script:57: ERR " + denied,
		"ERR " + oom, "ERR x @user_script:57: " + denied,
	} {
		err := refusal(text)
		require.False(t, IsDenied(err) || IsOutOfMemory(err) || IsWrongType(err) || IsPermanent(err) || IsNoScript(err) || WasNotRun(err), text)
	}
}

// Servers and proxies say in different words that they do not have a command, or let nobody use it. What stands further on
// in a text may be the name of a lock, and says nothing.
func TestUnknownCommands(t *testing.T) {
	const place = "Error running script (call to f_513e4d2b09ac94a20eda5241fb6fd25dbd17e297): @user_script:57: "
	for text, name := range map[string]string{
		"ERR unknown command 'EVALSHA', with args beginning with: 'x' ":                         "evalsha",
		"ERR unknown command `evalsha`, with args beginning with: ":                             "evalsha", // Redis 6
		"ERR unknown command 'EVAL'":                                                            "eval",
		"ERR unknown or unsupported command 'time'":                                             "time",
		"ERR unsupported command 'script'":                                                      "script",
		"ERR unknown subcommand 'LOAD'. Try SCRIPT HELP.":                                       "load",
		"ERR Command is not available: 'EVALSHA'. See https://example.com":                      "evalsha", // Upstash
		"ERR Command is not available: EVAL":                                                    "eval",
		"ERR Command is not available: 'CLIENT'. See https://example.com":                       "client",
		"ERR command 'EVALSHA' not support":                                                     "evalsha", // Alibaba
		"ERR command 'eval' not support for normal user":                                        "eval",
		"ERR command script not support your request":                                           "script",
		"ERR 'EVALSHA' command is not supported":                                                "evalsha",
		"ERR handle request, command 'EVALSHA' is not allowed":                                  "evalsha", // Codis
		"ERR the command `eval` is disabled":                                                    "eval",
		"ERR unknown command":                                                                   "", // Azure
		"ERR unknown command, with args beginning with: 'x'":                                    "",
		"ERR unknown command EVALSHA":                                                           "evalsha",
		"ERR unknown command: evalsha":                                                          "evalsha",
		"unsupported command 'evalsha'":                                                         "evalsha", // Envoy
		"ERR Unknown subcommand or wrong number of arguments for 'LOAD'. Try SCRIPT HELP.":      "load",    // Dragonfly, KeyDB
		"@user_script: 5: Unknown Redis command called from Lua script":                         "*",       // KeyDB
		"ERR command 'EVALSHA' is not allowed":                                                  "evalsha",
		"ERR command EVALSHA not supported.":                                                    "evalsha",
		"ERR command is not allowed":                                                            "",
		"invalid request":                                                                       "",
		"ERR Unknown Redis command called from script script: f_513e, on @user_script:57.":      "*",
		"ERR Unknown Redict command called from script script: f_513e, on @user_script:57.":     "*",
		"ERR Unknown command called from script script: on @user_script:57.":                    "*", // Valkey 9
		"ERR This Redis command is not allowed from script script: f_513e, on @user_script:57.": "*",
		"ERR " + place + "@user_script: 57: Unknown Redis command called from Lua script":       "*", // Redis 6
		"@user_script: 57: Unknown Redis command called from Lua script":                        "*", // Redis 6, pcall
		"ERR " + place + "unknown command 'TIME'":                                               "*",
	} {
		err := refusal(text)
		require.True(t, IsUnknown(err) && IsPermanent(err), text)
		require.False(t, IsDenied(err) || IsNoScript(err) || IsUnknown(noAnswer("", err)), text)
		bySHA := name == "evalsha" || name == "" // otherwise EVAL cannot do
		require.Equal(t, bySHA, IsNoScript(OfScript(err)), text)
		require.Equal(t, name == "evalsha" || name == "eval", WasNotRun(err), text)
		require.Equal(t, bySHA, LacksSHA(OfScript(err)) && WasNotRun(OfScript(err)) && !IsUnknown(OfScript(err)) && !IsPermanent(OfScript(err)), text)
		require.EqualError(t, OfScript(err), text)
	}
	for _, text := range []string{
		"NOAUTH Authentication required.", "NOSCRIPT unknown command", "ERR x unknown command 'EVALSHA'", "ERR unknown commands",
		"WRONGTYPE the key unknown command is a list", "ERR the queue ERR unknown command 'EVALSHA' is a list",
		"OOM command not allowed when used memory > 'maxmemory'.", "ERR command not allowed when used memory > 'maxmemory'.",
		"ERR invalid request line", "ERR SELECT is not allowed in cluster mode", "ERR syntax error", "ERR", "", "command", "ERR command 'x'",
		"ERR the queue command is not allowed", "ERR Unknown key of a command called from script", "ERR 'x' is not supported", "ERR command 'x' not allowed when the server is busy", "ERR command not supporting",
		"ERR " + place + "x: unknown command 'TIME'",
	} {
		err := refusal(text)
		require.False(t, IsUnknown(err), text)
		require.Equal(t, error(err), OfScript(err), text)
	}
	for _, text := range []string{"ERR DB index is out of range", "ERR invalid DB index", "ERR SELECT is not allowed in cluster mode"} {
		require.True(t, IsPermanent(refusal(text)), text)
	}
	require.False(t, IsUnknown(errors.New("ERR unknown command 'EVALSHA'")), "not from a node")
	require.NoError(t, OfScript(nil))
}

// The names are found in pieces of any size, and nothing else is kept.
func TestCommandNames(t *testing.T) {
	var sent []byte
	for _, args := range [][]any{{"hello", 2, "auth", "u", "p"}, {"auth", "secret\r\n*1\r\n$4\r\nping\r\n"}, {"client", "setinfo", "a", "b"}, {"script", "load", "return 1"}, {"ping"}} {
		sent, _ = AppendCommand(sent, args)
	}
	for size := 1; size <= len(sent); size++ {
		var c commandNames
		for chunk := range slices.Chunk(sent, size) {
			c.write(chunk)
		}
		require.Equal(t, []string{"HELLO", "AUTH", "CLIENT SETINFO", "SCRIPT LOAD", "PING"}, c.names)
	}
	require.Equal(t, "CLIENT ", commandName("client"))
	require.ErrorContains(t, cutOffAt("CLIENT MAINT_NOTIFICATIONS", io.EOF), "(Options.MaintNotificationsConfig can leave it out): EOF")
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
