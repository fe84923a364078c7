package embedded

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by their SHA1
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// This file runs scripts, in place of Miniredis's own implementation. Miniredis makes a new Lua state
// with all libraries for each run of a script, which costs about ten times as much as the script
// itself. Here a node keeps one Lua state.

// An interpreter is the Lua state of one node. It runs one script at a time, and the node
// executes no other command meanwhile.
type interpreter struct {
	state    *lua.LState
	scripts  map[string]*lua.LFunction // by SHA1
	dispatch func(to *server.Peer, args []string)
	data     func(db int) *miniredis.RedisDB
	db       int                  // the database of the running script
	callers  map[int]*server.Peer // the peers that execute commands of scripts, by database
	caller   *server.Peer         // the peer that executes the commands of the running script
	rewrite  func(string) string  // see Node.Rewrite; may be nil
	lacks    func(string) error   // why scripts cannot use a command
	spy      func(Called)         // see Node.Spy; may be nil
	running  Called               // what spy is told of the running script

	// The answer to a command within a script.
	reply bytes.Buffer
	out   *bufio.Writer
	back  *bufio.Reader
}

// A script is a compiled script.
type script struct {
	source string
	proto  *lua.FunctionProto
	sha    string // its SHA1
}

// compiled holds scripts, by source.
var compiled sync.Map

func compile(source string) (script, error) {
	if s, ok := compiled.Load(source); ok {
		return s.(script), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return script{}, err
	}
	proto, err := lua.Compile(chunk, "user_script")
	if err != nil {
		return script{}, err
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg // a script has no table arg: as in Redis, and cheaper
	sum := sha1.Sum([]byte(source))       //nolint:gosec // see the import
	s := script{source, proto, hex.EncodeToString(sum[:])}
	compiled.Store(source, s)
	return s, nil
}

func newInterpreter(dispatch func(to *server.Peer, args []string), data func(db int) *miniredis.RedisDB) *interpreter {
	in := &interpreter{
		state:    lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 256, RegistryMaxSize: 1 << 16}),
		scripts:  make(map[string]*lua.LFunction),
		callers:  make(map[int]*server.Peer),
		dispatch: dispatch,
		data:     data,
	}
	in.out, in.back = bufio.NewWriter(&in.reply), bufio.NewReaderSize(&in.reply, 16)
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		in.state.Push(in.state.NewFunction(open))
		in.state.Push(lua.LString(name))
		in.state.Call(1, 0)
	}
	texts := in.state.GetGlobal(lua.StringLibName).(*lua.LTable)
	texts.RawSetString("format", in.state.NewFunction(quickly(texts.RawGetString("format").(*lua.LFunction).GFunction)))
	texts.RawSetString("find", in.state.NewFunction(findQuickly(texts.RawGetString("find").(*lua.LFunction).GFunction)))
	redis := in.state.NewTable()
	redis.RawSetString("call", in.state.NewFunction(in.call))
	redis.RawSetString("pcall", in.state.NewFunction(in.pcall))
	redis.RawSetString("error_reply", in.state.NewFunction(field("err")))
	redis.RawSetString("status_reply", in.state.NewFunction(field("ok")))
	in.state.SetGlobal("redis", redis)
	return in
}

// load makes a script known and returns its SHA1.
func (in *interpreter) load(source string) (string, error) {
	s, err := compile(source)
	if err != nil {
		return "", err
	}
	if in.scripts[s.sha] == nil {
		proto := s.proto
		if in.rewrite != nil {
			rewritten, err := compile(in.rewrite(source))
			if err != nil {
				return "", err
			}
			proto = rewritten.proto
		}
		in.scripts[s.sha] = in.state.NewFunctionFromProto(proto)
	}
	return s.sha, nil
}

// execute answers SCRIPT LOAD, EVAL and EVALSHA, and reports whether it has answered. On SCRIPT
// FLUSH it forgets all scripts.
func (in *interpreter) execute(peer *server.Peer, db int, command string, args []string) bool {
	in.caller, in.db = in.callerIn(db), db
	switch {
	case command == "SCRIPT" && len(args) == 2 && strings.EqualFold(args[0], "load"):
		sha, err := in.load(args[1])
		if err != nil {
			peer.WriteError("ERR " + err.Error())
			return true
		}
		peer.WriteBulk(sha)
	case command == "EVAL" && len(args) >= 2:
		sha, err := in.load(args[0])
		if err != nil {
			peer.WriteError("ERR " + err.Error())
			return true
		}
		in.run(peer, in.scripts[sha], args[1:])
	case command == "EVALSHA" && len(args) >= 2:
		script := in.scripts[args[0]]
		if script == nil {
			peer.WriteError("NOSCRIPT No matching script. Please use EVAL.")
			return true
		}
		in.run(peer, script, args[1:])
	case command == "SCRIPT" && len(args) > 0 && strings.EqualFold(args[0], "flush"):
		clear(in.scripts)
		return false // Miniredis checks the arguments, and answers
	default:
		return false
	}
	return true
}

// callerIn returns the peer that executes the commands of scripts in a database.
func (in *interpreter) callerIn(db int) *server.Peer {
	if in.callers[db] == nil {
		in.callers[db] = server.NewPeer(in.out)
		in.dispatch(in.callers[db], []string{"SELECT", strconv.Itoa(db)})
	}
	return in.callers[db]
}

// run runs a script. args begin with the number of its keys.
func (in *interpreter) run(peer *server.Peer, script *lua.LFunction, args []string) {
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 || n >= len(args) {
		peer.WriteError("ERR Number of keys can't be negative or greater than number of args")
		return
	}
	in.state.SetGlobal("KEYS", in.list(args[1:1+n]))
	in.state.SetGlobal("ARGV", in.list(args[1+n:]))
	in.running = Called{Script: script, Keys: args[1 : 1+n]}
	in.state.Push(script)
	if err := in.state.PCall(0, 1, nil); err != nil {
		text := "ERR " + strings.ReplaceAll(err.Error(), "\n", " ")
		if raised := new(lua.ApiError); errors.As(err, &raised) && strings.HasPrefix(raised.Object.String(), "ERR ") {
			text = raised.Object.String() // see call
		}
		peer.WriteError(text)
		return
	}
	result := in.state.Get(-1)
	in.state.Pop(1)
	answer(peer, result)
}

func (in *interpreter) list(elements []string) *lua.LTable {
	t := in.state.CreateTable(len(elements), 0)
	for _, e := range elements {
		t.Append(lua.LString(e))
	}
	return t
}

// answer writes a Lua value as Redis does.
func answer(peer *server.Peer, value lua.LValue) {
	switch v := value.(type) {
	case lua.LBool:
		if !v {
			peer.WriteNull()
			return
		}
		peer.WriteInt(1)
	case lua.LNumber:
		peer.WriteInt(int(v))
	case lua.LString:
		peer.WriteBulk(string(v))
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			peer.WriteError(string(text))
			return
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			peer.WriteInline(string(text))
			return
		}
		peer.WriteLen(v.Len())
		for i := range v.Len() {
			answer(peer, v.RawGetInt(i+1))
		}
	default:
		peer.WriteNull()
	}
}

// quickly returns string.format with a quick way for whole numbers in the verbs of our scripts.
func quickly(format lua.LGFunction) lua.LGFunction {
	return func(l *lua.LState) int {
		pattern, _ := l.Get(1).(lua.LString)
		number, isNumber := l.Get(2).(lua.LNumber)
		whole := int64(number)
		if !isNumber || l.GetTop() != 2 || number < 0 || number > 1<<53 || lua.LNumber(whole) != number {
			return format(l)
		}
		width := 13
		before, after, found := strings.Cut(string(pattern), "%013.0f")
		if !found {
			width = 0
			before, after, found = strings.Cut(string(pattern), "%.0f")
		}
		if !found || strings.Contains(before, "%") || strings.Contains(after, "%") {
			return format(l)
		}
		digits := strconv.FormatInt(whole, 10)
		l.Push(lua.LString(before + "0000000000000"[:max(0, width-len(digits))] + digits + after))
		return 1
	}
}

// findQuickly returns string.find with a quick way to the first character that is no digit.
func findQuickly(find lua.LGFunction) lua.LGFunction {
	return func(l *lua.LState) int {
		text, ok := l.Get(1).(lua.LString)
		if !ok || l.GetTop() != 2 || l.Get(2) != lua.LString("%D") {
			return find(l)
		}
		at := strings.IndexFunc(string(text), func(r rune) bool { return r < '0' || r > '9' })
		if at < 0 {
			l.Push(lua.LNil)
			return 1
		}
		l.Push(lua.LNumber(at + 1))
		l.Push(lua.LNumber(at + 1))
		return 2
	}
}

// call implements redis.call: an error ends the script.
func (in *interpreter) call(l *lua.LState) int {
	value, err := in.command(l)
	var lacks lackError
	switch {
	case errors.As(err, &lacks): // in the words of Redis 7, which tells the place at the end
		l.Error(lua.LString(lacks+" script: f_1, on @user_script:1."), 0)
	case err != nil:
		l.RaiseError("%s", err.Error())
	}
	l.Push(value)
	return 1
}

// pcall implements redis.pcall: it returns an error as a table with the field err.
func (in *interpreter) pcall(l *lua.LState) int {
	value, err := in.command(l)
	if err != nil {
		t := l.CreateTable(0, 1)
		t.RawSetString("err", lua.LString(err.Error()))
		value = t
	}
	l.Push(value)
	return 1
}

// field returns the implementation of redis.error_reply or redis.status_reply, which make a table
// with that field.
func field(name string) lua.LGFunction {
	return func(l *lua.LState) int {
		t := l.CreateTable(0, 1)
		t.RawSetString(name, lua.LString(l.CheckString(1)))
		l.Push(t)
		return 1
	}
}

// command executes a command of a script.
func (in *interpreter) command(l *lua.LState) (lua.LValue, error) {
	args := make([]string, l.GetTop())
	for i := range args {
		switch arg := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(arg)
		case lua.LNumber:
			args[i] = arg.String()
		default:
			return nil, errors.New("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	if err := in.lacks(args[0]); err != nil {
		return nil, err
	}
	if in.spy != nil {
		in.running.Command = args
		in.spy(in.running)
	}
	if len(args) == 2 {
		if value := in.read(args[0], args[1]); value != nil {
			return value, nil
		}
	}
	in.reply.Reset()
	in.out.Reset(&in.reply)
	in.dispatch(in.caller, args)
	_ = in.out.Flush() // into memory
	in.back.Reset(&in.reply)
	reply, err := server.ParseReply(in.back)
	if err != nil {
		return nil, err
	}
	return in.value(reply), nil
}

// read answers what scripts ask most, the text of a key or its length, without the detour over a reply. It returns nil for
// other commands and for keys of other types.
func (in *interpreter) read(command, key string) lua.LValue {
	if command != "GET" && command != "STRLEN" {
		return nil
	}
	text, err := in.data(in.db).Get(key)
	missing := errors.Is(err, miniredis.ErrKeyNotFound)
	switch {
	case err != nil && !missing:
		return nil
	case command == "STRLEN":
		return lua.LNumber(len(text))
	case missing:
		return lua.LFalse
	}
	return lua.LString(text)
}

// A Called is a command that a script is about to execute.
type Called struct {
	Script  any // equal for calls of one script
	Keys    []string
	Command []string
}

// Undeclared returns the keys that the command touches, and that are not among the keys of the script. Strict servers refuse
// such a command.
func (c Called) Undeclared() (keys []string) {
	switch args := c.Command[1:]; strings.ToLower(c.Command[0]) {
	case "time", "publish":
	case "bitop": // an operation, and keys
		keys = args[1:]
	case "del", "exists", "mget":
		keys = args
	default:
		keys = args[:1]
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(c.Keys, key) })
}

// value converts a reply to a Lua value.
func (in *interpreter) value(reply any) lua.LValue {
	switch r := reply.(type) {
	case int:
		return lua.LNumber(r)
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case []byte:
		return lua.LString(r)
	case server.Simple:
		t := in.state.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(r))
		return t
	case []any:
		t := in.state.CreateTable(len(r), 0)
		for _, element := range r {
			t.Append(in.value(element))
		}
		return t
	default:
		return lua.LFalse
	}
}
