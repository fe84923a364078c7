package embedded

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// This file plays the commands of newer servers that compare and delete, and that set several keys.
// Miniredis has only DELEX, and has it always. The file knows the words that locks use: to others, such as IFNE and EX, a
// node answers that they are wrong. Scripts and transactions cannot use these commands.

// since has the first versions with each command, by product.
var since = map[string]map[string][]int{
	"DELEX":   {"Redis": {8, 4}},
	"DELIFEQ": {"Valkey": {9, 0}},
	"MSETEX":  {"Redis": {8, 4}, "Valkey": {9, 1}},
}

// A version is the server that a node plays. The zero value is no certain one.
type version struct {
	product, number string
	order           []int // the first two parts of the number
}

// SetVersion makes the node play a server, such as "Redis 8.6.3" or "Valkey 9.1.2": INFO says so, and clients can use the
// commands that this version has. A connection that is open stays open, as if a proxy were in between. "" stands for how
// a node begins: INFO names no version, and the node has none of these commands.
func (n *Node) SetVersion(name string) {
	v, major, minor := version{}, 0, 0
	if name != "" {
		if _, err := fmt.Sscanf(name, "%s %d.%d", &v.product, &major, &minor); err != nil {
			panic(fmt.Sprintf("version %q: %v", name, err))
		}
		v.number, v.order = strings.TrimPrefix(name, v.product+" "), []int{major, minor}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version = v
}

// SetVersion does that on all nodes.
func (ns Nodes) SetVersion(name string) {
	for _, n := range ns {
		n.SetVersion(name)
	}
}

// has reports whether a server of this version has a command of since.
func (v version) has(command string) bool {
	first := since[command][v.product]
	return first != nil && slices.Compare(v.order, first) >= 0
}

// info returns the lines of INFO that name the version. Descendants of Redis 7.2 still name that, too.
func (v version) info() (lines string) {
	switch v.product {
	case "":
		return ""
	case "Redis":
		return fmt.Sprintf("redis_version:%s\r\n", v.number)
	case "Valkey":
		lines = "server_name:valkey\r\n"
	}
	return fmt.Sprintf("redis_version:7.2.4\r\n%s%s_version:%s\r\n", lines, strings.ToLower(v.product), v.number)
}

// native answers the commands of since, and reports whether it has answered.
func (n *Node) native(peer *server.Peer, db int, name string, args []string) bool {
	if since[name] == nil {
		return false
	}
	n.mu.Lock()
	has, isValkey := n.version.has(name) && n.lacks[name] == Has, n.version.product == "Valkey"
	n.mu.Unlock()
	switch {
	case !has:
		peer.WriteError(Missing.fault(name, args).Err)
	case name == "MSETEX":
		setsAll(peer, n.DB(db), args, isValkey)
	default:
		deletesIfEqual(peer, n.DB(db), name, args)
	}
	return true
}

// deletesIfEqual answers DELEX, which also deletes without a condition, and DELIFEQ.
func deletesIfEqual(peer *server.Peer, data *miniredis.RedisDB, name string, args []string) {
	isDelex := name == "DELEX"
	plain := isDelex && len(args) == 1
	if !plain && (isDelex && len(args) != 3 || !isDelex && len(args) != 2) {
		peer.WriteError(wrongNumber(name))
		return
	}
	key, value := args[0], args[len(args)-1]
	text, err := data.Get(key)
	switch {
	case errors.Is(err, miniredis.ErrKeyNotFound):
		peer.WriteInt(0)
	case err != nil && isDelex && !plain:
		peer.WriteError("ERR Key should be of string type if conditions are specified")
	case err != nil && !plain:
		peer.WriteError(err.Error())
	case len(args) == 3 && !strings.EqualFold(args[1], "ifeq"):
		peer.WriteError("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
	case text != value && !plain:
		peer.WriteInt(0)
	default:
		data.Del(key)
		peer.WriteInt(1)
	}
}

// setsAll answers MSETEX. Valkey finds other words for what is wrong.
func setsAll(peer *server.Peer, data *miniredis.RedisDB, args []string, isValkey bool) {
	if len(args) < 3 {
		peer.WriteError(wrongNumber("MSETEX"))
		return
	}
	n, err := strconv.ParseInt(args[0], 10, 32)
	pairs := args[1:]
	switch {
	case (err != nil || n < 1) && isValkey:
		peer.WriteError("ERR invalid numkeys value or out of range")
		return
	case err != nil || n < 1:
		peer.WriteError("ERR invalid numkeys value")
		return
	case int(n) > len(pairs)/2 && isValkey:
		peer.WriteError(syntaxError)
		return
	case int(n) > len(pairs)/2:
		peer.WriteError("ERR wrong number of key-value pairs")
		return
	}
	s, fault := settingOf(pairs[2*n:])
	if fault != "" {
		peer.WriteError(fault)
		return
	}
	pairs = pairs[:2*n]
	for i := 0; i < len(pairs); i += 2 {
		if exists := data.Exists(pairs[i]); s.condition == "NX" && exists || s.condition == "XX" && !exists {
			peer.WriteInt(0)
			return
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		s.write(data, pairs[i], pairs[i+1])
	}
	peer.WriteInt(1)
}

// A setting is what stands behind the keys and values of MSETEX.
type setting struct {
	condition string // "NX", "XX" or ""
	keeps     bool   // KEEPTTL
	ttl       time.Duration
}

const syntaxError = "ERR syntax error"

func wrongNumber(command string) string {
	return fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(command))
}

// settingOf reads a setting. fault is the error to answer, "" if there is none.
func settingOf(args []string) (s setting, fault string) {
	px, lasts := "", false
	for ; len(args) > 0; args = args[1:] {
		word := strings.ToUpper(args[0])
		switch {
		case (word == "NX" || word == "XX") && (s.condition == "" || s.condition == word):
			s.condition = word
		case word == "KEEPTTL" && !lasts:
			s.keeps = true
		case word == "PX" && !s.keeps && len(args) > 1:
			lasts, px, args = true, args[1], args[1:]
		default:
			return s, syntaxError
		}
	}
	if !lasts {
		return s, ""
	}
	ms, err := strconv.ParseInt(px, 10, 64)
	switch {
	case err != nil:
		return s, "ERR value is not an integer or out of range"
	case ms <= 0 || ms > math.MaxInt64/int64(time.Millisecond):
		return s, "ERR invalid expire time in 'msetex' command"
	}
	s.ttl = time.Duration(ms) * time.Millisecond
	return s, ""
}

// write sets a key.
func (s setting) write(data *miniredis.RedisDB, key, value string) {
	if s.keeps {
		s.ttl = data.TTL(key)
	}
	data.Del(key) // it may have another type
	_ = data.Set(key, value)
	if s.ttl > 0 {
		data.SetTTL(key, s.ttl)
	}
}
