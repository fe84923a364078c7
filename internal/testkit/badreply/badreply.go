// Package badreply holds bytes that a broken node may send, but no Redis would send in answer to
// the library. The simulation and the chaos program put them in place of replies and messages, at
// any moment of a connection's life. The package also holds decoded replies, as seeds for fuzzing
// (Values).
package badreply

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Saying is bytes that a node sends in place of a reply or a message.
type Saying struct {
	Bytes string
	// Whole means that Bytes are exactly one reply by the grammar, though of a type or with a
	// value that makes no sense. Later replies still match their requests. A client may read any
	// other Saying as several replies, or as a part of one. Unless it recognizes those Bytes as
	// malformed, it would match a later true reply to the wrong request, so none may follow.
	Whole bool
}

func (s Saying) String() string {
	if len(s.Bytes) <= 40 {
		return fmt.Sprintf("%q", s.Bytes)
	}
	return fmt.Sprintf("%q and so on, %d bytes", s.Bytes[:20], len(s.Bytes))
}

const (
	// depth is how deep arrays are nested. A reader that recurses for each level needs more stack
	// than MaxStack.
	depth = 60_000
	// MaxStack is the stack limit (debug.SetMaxStack) of programs that read sayings. It is so small
	// that a saying of depth arrays exposes unbounded recursion.
	MaxStack = 8 << 20

	long = 64 << 10 // bytes of a line or an error text
)

// Sayings are all sayings.
var Sayings = []Saying{
	// Impossible lengths, and possible ones followed by too few bytes.
	{Bytes: "$9223372036854775807\r\n"},
	{Bytes: "$9223372036854775806\r\nx"},
	{Bytes: "$-9223372036854775808\r\n"},
	{Bytes: "$-2\r\n"},
	{Bytes: "$16000000\r\nx"},
	{Bytes: "*9223372036854775807\r\n"},
	{Bytes: "*2147483647\r\n"},
	{Bytes: "*-2\r\n"},
	{Bytes: "*1000000\r\n$1\r\nx\r\n"},
	{Bytes: "*3\r\n$7\r\nmessage\r\n$9223372036854775807\r\n"},
	{Bytes: "%9223372036854775807\r\n"},
	{Bytes: "%2147483647\r\n"},
	{Bytes: "~2147483647\r\n"},
	{Bytes: ">2147483647\r\n"},
	{Bytes: "=9223372036854775807\r\n"},
	{Bytes: "!9223372036854775807\r\n"},
	{Bytes: "|9223372036854775807\r\n"},
	{Bytes: "$?\r\n;9223372036854775807\r\n"},
	// Excessive nesting.
	{Bytes: strings.Repeat("*1\r\n", depth)},
	{Bytes: strings.Repeat("%1\r\n", depth)},
	{Bytes: strings.Repeat("|1\r\n", depth)},
	// RESP3, which the library does not use.
	{Bytes: "_\r\n"},
	{Bytes: "#t\r\n"},
	{Bytes: ",3.14\r\n"},
	{Bytes: "(12345678901234567890123\r\n"},
	{Bytes: "=7\r\ntxt:abc\r\n"},
	{Bytes: "!5\r\nERR x\r\n"},
	{Bytes: "~1\r\n+a\r\n"},
	{Bytes: "%1\r\n+a\r\n*0\r\n"},
	{Bytes: ">2\r\n$10\r\ninvalidate\r\n*0\r\n"},
	{Bytes: "|1\r\n+a\r\n+b\r\n$5\r\nhello\r\n"},
	// Garbage, and lines without an end.
	{Bytes: "\r\n"},
	{Bytes: "\x00\xff\xfe\x16\x03\x01\r\n"},
	{Bytes: "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"},
	{Bytes: ":\r\n"},
	{Bytes: ":12x\r\n"},
	{Bytes: "$5\r\nhelloXY"},
	{Bytes: "+" + strings.Repeat("x", long)},
	{Bytes: "*" + strings.Repeat("1", long)},
	// Replies of a type that fits no request.
	{Bytes: "+HELLO\r\n", Whole: true},
	{Bytes: "$5\r\nhello\r\n", Whole: true},
	{Bytes: "*0\r\n", Whole: true},
	{Bytes: "*2\r\n*1\r\n$-1\r\n:-7\r\n", Whole: true},
	{Bytes: "*3\r\n:1\r\n:2\r\n:3\r\n", Whole: true},
	{Bytes: "*3\r\n$7\r\nmessage\r\n*0\r\n:1\r\n", Whole: true},
	{Bytes: "*1\r\n$7\r\nmessage\r\n", Whole: true},
	{Bytes: "*3\r\n$9\r\nsubscribe\r\n$-1\r\n$-1\r\n", Whole: true},
	{Bytes: "*-1\r\n", Whole: true},
	{Bytes: "$-1\r\n", Whole: true},
	{Bytes: ":-9223372036854775808\r\n", Whole: true},
	{Bytes: "-ERR " + strings.Repeat("y", 8<<10) + "\r\n", Whole: true},
	{Bytes: "-\r\n", Whole: true},
}

// A Then is what a node does after a Saying.
type Then string

// The values of Then. GoOn is only for a Saying that is Whole, or that a client recognizes as
// malformed.
const (
	GoOn  Then = "goes on"
	Hang  Then = "hangs"
	Close Then = "closes"
)

// An Outburst is one occasion on which a node sends nonsense.
type Outburst struct {
	Saying
	After bool // the Saying follows the true reply, instead of replacing it
	Then  Then
}

func (o Outburst) String() string {
	how := "says"
	if o.After {
		how = "adds"
	}
	return fmt.Sprintf("%s %v and %s", how, o.Saying, o.Then)
}

// Draw returns a random Outburst.
func Draw(r *rand.Rand) Outburst {
	o := Outburst{Saying: Sayings[r.IntN(len(Sayings))], After: r.IntN(4) == 0}
	o.Then = []Then{GoOn, Hang, Close}[r.IntN(3)]
	if o.After && o.Then == GoOn {
		o.Then = Hang // otherwise the next true reply would seem to answer another request
	}
	return o
}
